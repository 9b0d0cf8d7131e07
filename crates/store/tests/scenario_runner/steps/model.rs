//! What the model does: it is asked, calls tools, says something, fails.
//!
//! `model is asked` marks what it has seen; without it, a reply has seen everything so far. `as if` somebody had decided
//! marks what it would have seen then, and nothing is decided by that.

use standfast_core::actor::Actor;
use standfast_core::command::{AskedCall, Command, RecordFailure, RecordReply};
use standfast_core::message::Usage;

use super::super::details::{Details, not_understood};
use super::super::script::Tok;
use super::super::script::Tok::{Json, Text, Word};
use super::super::world::World;
use super::people;

pub(super) fn take(world: &mut World, toks: &[Tok<'_>]) -> Result<(), String> {
    match toks {
        [Word("is"), Word("asked")] => {
            let heard = world.view()?.row.run.heard();
            let current = world.current;
            world.runs[current].asked_with = Some(heard);
            Ok(())
        }
        [Word("is"), Word("asked"), Word("as"), Word("if"), Word(name), rest @ ..] => {
            let ahead = people::ahead(world, name, rest)?;
            let current = world.current;
            world.runs[current].asked_with = Some(ahead.heard());
            Ok(())
        }
        [Word("says"), Text(text), Word("and"), Word("calls"), calls @ ..] => {
            reply(world, Some(text), asked(calls)?)
        }
        [Word("says"), Text(text)] => reply(world, Some(text), Vec::new()),
        [Word("calls"), calls @ ..] => reply(world, None, asked(calls)?),
        [Word("fails"), Word("for"), Word("good"), rest @ ..] | [Word("fails"), rest @ ..] => {
            let details = Details::read(rest)?;
            let retry_at = details.retry_in.map(|span| world.now.plus(span));
            let current = world.current;
            let heard = world.runs[current].asked_with.take();
            let failure = RecordFailure { error: details.value()?, retry_at, heard };
            let node = Actor::Node(world.node);
            world.submit(node, Command::RecordFailure(failure)).map(drop)
        }
        other => Err(not_understood(other)),
    }
}

fn reply(world: &mut World, text: Option<&str>, calls: Vec<AskedCall>) -> Result<(), String> {
    let now = world.view()?.row.run.heard();
    let current = world.current;
    let reply = RecordReply {
        text: text.map(str::to_owned),
        parts: Vec::new(),
        calls,
        opaque: None,
        usage: Usage { input: 70, output: 30, cost_micros: 0 },
        model: None,
        heard: world.runs[current].asked_with.take().unwrap_or(now),
    };
    let node = Actor::Node(world.node);
    world.submit(node, Command::RecordReply(reply)).map(drop)
}

/// `TOOL {arguments} and TOOL {arguments}`; a quoted text stands for arguments that are not JSON, and
/// `wrongly "why"` for arguments that the engine finds wrong.
fn asked(toks: &[Tok<'_>]) -> Result<Vec<AskedCall>, String> {
    let mut calls = Vec::new();
    for piece in toks.split(|tok| *tok == Word("and")) {
        let (tool, arguments, problem) = match piece {
            [Word(tool), Json(arguments) | Text(arguments)] => (tool, arguments, None),
            [Word(tool), Json(arguments), Word("wrongly"), Text(why)] => {
                (tool, arguments, Some((*why).to_owned()))
            }
            other => return Err(not_understood(other)),
        };
        calls.push(AskedCall {
            id: format!("toolu_{}", calls.len() + 1),
            tool: (*tool).to_owned(),
            arguments: (*arguments).to_owned(),
            problem,
        });
    }
    Ok(calls)
}
