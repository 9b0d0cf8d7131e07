//! What clients do: start runs, say more, cancel, erase.
//!
//! The first thing that is said starts a run called `main`; further ones are started by name.

use standfast_core::actor::Actor;
use standfast_core::command::{Command, OnHold, Say, Start};
use standfast_core::id::{RunId, StorageKind};
use standfast_core::message::Message;
use standfast_core::name::{SessionId, Tenant};
use standfast_core::time::Millis;

use super::super::block_on::block_on;
use super::super::details::{Details, not_understood};
use super::super::script::Tok;
use super::super::script::Tok::{Text, Word};
use super::super::setting::OWNER;
use super::super::world::{World, user};

pub(super) fn take(world: &mut World, toks: &[Tok<'_>]) -> Result<(), String> {
    let client = Actor::Client(user(OWNER)?);
    match toks {
        [Word("says"), Text(text)] if world.runs.is_empty() => start(world, "main", text),
        [Word("starts"), Word("run"), Word(name), Word("with"), Text(text)] => start(world, name, text),
        [Word("says"), Text(text), rest @ ..] => {
            let details = Details::read(rest)?;
            let on_hold = if details.superseding { OnHold::Supersede } else { OnHold::Refuse };
            let say = Say { message: Message::text(*text), on_hold };
            world.submit(client, Command::Say(say)).map(drop)
        }
        [Word("cancels"), rest @ ..] => {
            let reason = Details::read(rest)?.reason;
            world.submit(client, Command::Cancel { reason }).map(drop)
        }
        // The event says that the contents are to go; the store then deletes them.
        [Word("erases"), rest @ ..] => {
            let reason = Details::read(rest)?.reason;
            world.submit(client, Command::Erase { reason })?;
            if let Some(Ok(_)) = world.outcome {
                let run = world.current()?.id;
                block_on(world.store.erase(run)).map_err(|error| error.to_string())?;
            }
            Ok(())
        }
        other => Err(not_understood(other)),
    }
}

fn start(world: &mut World, name: &str, text: &str) -> Result<(), String> {
    world.now = world.now.plus(Millis::seconds(1));
    world.pin();
    let tenant = Tenant::default_tenant();
    let random = [1, 2, 3, 4, u8::try_from(world.runs.len()).map_err(|_| "too many runs")?];
    let start = Start {
        id: RunId::new(&tenant, StorageKind::Durable, world.now, random),
        tenant,
        agent: world.setting.definition.agent.clone(),
        session: SessionId::new("conversation-1").map_err(|bad| bad.to_string())?,
        owner: user(OWNER)?,
        driver: world.setting.driver,
        definition: world.setting.definition.digest(),
        parent: None,
        inbox: world.setting.inbox.clone(),
        message: Message::text(text),
        taken: world.setting.taken,
        history: None,
    };
    world.start(name, start)
}
