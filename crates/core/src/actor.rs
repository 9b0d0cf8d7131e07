//! Who caused an event.
//!
//! Taken from the credential or the mechanism, never from what a message claims. Written as `kind:name`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::base32::{self, from_text};
use crate::id::{BadId, Incarnation};
use crate::name::{UserId, WorkerName};

/// Room for the longest kind and the longest name.
const LONGEST_TEXT: usize = 272;

/// Who caused an event.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Actor {
    /// Someone who decides.
    Person(UserId),
    /// Someone who decides by an approval link that was issued for them.
    Link(UserId),
    /// Someone who sends work.
    Client(UserId),
    /// An outside system that reports back.
    Callback(UserId),
    /// An outside worker that claimed the run.
    Outside(WorkerName),
    /// A node of this server.
    Node(Incarnation),
    /// Time itself: expiry, reminders.
    Clock,
}

impl Actor {
    /// The person or system behind the event, when there is one.
    #[must_use]
    pub fn user(&self) -> Option<&UserId> {
        match self {
            Actor::Person(user) | Actor::Link(user) | Actor::Client(user) | Actor::Callback(user) => {
                Some(user)
            }
            Actor::Outside(_) | Actor::Node(_) | Actor::Clock => None,
        }
    }
}

impl Actor {
    /// The text form in its two halves, for whoever writes it out: with every append, so nothing grows on the way.
    pub(crate) fn with_halves<T>(&self, write: impl FnOnce(&'static str, &str) -> T) -> T {
        match self {
            Actor::Person(user) => write("person:", user.as_str()),
            Actor::Link(user) => write("link:", user.as_str()),
            Actor::Client(user) => write("client:", user.as_str()),
            Actor::Callback(user) => write("callback:", user.as_str()),
            Actor::Outside(worker) => write("outside:", worker.as_str()),
            Actor::Node(node) => write("node:", base32::Letters::of(&node.0).as_str()),
            Actor::Clock => write("clock", ""),
        }
    }

    /// The text form for as long as it is looked at: put together where it takes no allocation.
    pub fn with_text<T>(&self, look: impl FnOnce(&str) -> T) -> T {
        self.with_halves(|kind, name| {
            let mut room = [0; LONGEST_TEXT];
            let Some((first, rest)) = room.split_at_mut_checked(kind.len()) else { return look(kind) };
            let Some(second) = rest.get_mut(..name.len()) else { return look(&[kind, name].concat()) };
            first.copy_from_slice(kind.as_bytes());
            second.copy_from_slice(name.as_bytes());
            match std::str::from_utf8(&room[..kind.len() + name.len()]) {
                Ok(text) => look(text),
                Err(error) => unreachable!("two texts are a text: {error}"),
            }
        })
    }

    /// The text form.
    #[must_use]
    pub fn text(&self) -> String {
        self.with_halves(|kind, name| [kind, name].concat())
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.with_halves(|kind, name| {
            f.write_str(kind)?;
            f.write_str(name)
        })
    }
}

impl FromStr for Actor {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Actor, BadId> {
        let wrong = |_| BadId { wanted: "actor" };
        if text == "clock" {
            return Ok(Actor::Clock);
        }
        let (kind, name) = text.split_once(':').ok_or(BadId { wanted: "actor" })?;
        match kind {
            "person" => UserId::new(name).map(Actor::Person).map_err(wrong),
            "link" => UserId::new(name).map(Actor::Link).map_err(wrong),
            "client" => UserId::new(name).map(Actor::Client).map_err(wrong),
            "callback" => UserId::new(name).map(Actor::Callback).map_err(wrong),
            "outside" => WorkerName::new(name).map(Actor::Outside).map_err(wrong),
            "node" => name.parse().map(Actor::Node),
            _ => Err(BadId { wanted: "actor" }),
        }
    }
}

impl Serialize for Actor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Actor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_actor_survives_its_text_form() {
        let user = UserId::new("alice@example.com:8080").unwrap();
        for actor in [
            Actor::Person(user.clone()),
            Actor::Link(user.clone()),
            Actor::Client(user.clone()),
            Actor::Callback(user),
            Actor::Outside(WorkerName::new("w 1").unwrap()),
            Actor::Node(Incarnation([7; 16])),
            Actor::Clock,
        ] {
            assert_eq!(actor.with_text(str::to_owned), actor.text());
            assert_eq!(actor.to_string().parse(), Ok(actor));
        }
        let longest = Actor::Callback(UserId::new("é".repeat(128)).unwrap());
        assert_eq!(longest.with_text(str::to_owned), longest.text());
        assert!("person:".parse::<Actor>().is_err());
        assert!("root".parse::<Actor>().is_err());
    }
}
