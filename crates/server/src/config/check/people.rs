//! People and approval links: names that are none, and keys that do nothing without others.
//!
//! What a single value may be is `file/people.rs`; channels are `channels.rs`.

use standfast_core::name::UserId;
use standfast_surfaces::http::parse_rfc3339;

use super::CheckResult;
use super::rules::secret_in_file;
use crate::config::file::{Channel, ChannelType, File, LinkSignIn};
use crate::config::path::Path;
use crate::config::tree::Node;

pub(super) fn check(file: &File, tree: &Node, found: &mut CheckResult) {
    let path = Path::of(&["people"]);
    for name in file.people.keys() {
        if let Err(bad) = UserId::new(name) {
            let what = format!("`{path}` has an invalid user name: {bad}");
            found.problem(tree, &path.key(name), what, "write the user name as keys and tokens have it");
        }
    }
    for (name, person) in &file.people {
        let wished = person.notify.as_ref().and_then(|notify| notify.channels.as_ref());
        for channel in wished.into_iter().flatten() {
            let reaches = |one: &Channel| one.kind == ChannelType::Mail || one.direct == Some(true);
            let is_there = file.channels.iter().any(|one| reaches(one) && one.called() == channel);
            if !is_there {
                let path = path.key(name).key("notify").key("channels");
                let what = format!(
                    "`{path}` names `{channel}`, and there is no such channel of type `mail` or with `direct`"
                );
                found.problem(tree, &path, what, "write the name of a channel below `channels`, or its type");
            }
        }
    }
    for (name, person) in &file.people {
        let Some(away) = &person.away else { continue };
        let path = path.key(name).key("away");
        if away.stand_in == *name {
            let what = format!("`{path}`: {name} cannot stand in for themselves");
            found.problem(tree, &path.key("stand_in"), what, "name another user");
        }
        let [from, until] =
            [away.from.as_deref(), Some(away.until.as_str())].map(|text| text.and_then(parse_rfc3339));
        if from.zip(until).is_some_and(|(from, until)| until <= from) {
            let what = format!("`{path}` ends before it begins");
            found.problem(tree, &path.key("until"), what, "write a later time");
        }
    }
    let Some(links) = &file.server.links else { return };
    let path = Path::of(&["server", "links"]);
    secret_in_file(&path.key("key"), tree, found);
    for no in 0..links.previous_keys.len() {
        secret_in_file(&path.key("previous_keys").item(no), tree, found);
    }
    if links.sign_in != Some(LinkSignIn::None) && file.server.auth.is_none() {
        let what = "approval links need a sign-in, and there is no `server.auth`, so nobody can sign in";
        let help =
            "add `server.auth`, or write `sign_in: none` so that whoever has a link decides as its person";
        found.problem(tree, &path, what.to_owned(), help);
    }
    if tree.keys(&Path::of(&["people"])).is_empty() {
        let what = "there are no `people`, so no approval link can be issued".to_owned();
        found.notice(tree, &path, what);
    }
}
