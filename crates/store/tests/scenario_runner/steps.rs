//! What each sentence does: who speaks decides which file reads on.
//!
//! A step that is refused is an error unless the next sentence is `expect refused`. All sentences are listed in
//! `tests/scenarios/README.md`.

mod clients;
mod model;
mod nodes;
mod outside;
mod people;

use standfast_core::actor::Actor;
use standfast_core::command::Command;

use super::details::span;
use super::expect;
use super::script::Tok;
use super::script::Tok::{Json, Text, Word};
use super::world::World;

/// Takes one sentence.
pub(crate) fn take(world: &mut World, toks: &[Tok<'_>]) -> Result<(), String> {
    if let [Word("expect"), rest @ ..] = toks {
        return expect::check(world, rest);
    }
    if let Some(Err(refusal)) = world.outcome.take() {
        return Err(format!("the step before was refused: {refusal}"));
    }
    match toks {
        [Word("given" | "policy" | "definition"), rest @ ..] => world.setting.given(match rest {
            [Word("now"), rest @ ..] => rest,
            rest => rest,
        }),
        [Word("restart")] => world.restart(),
        [Word("node"), Word("dies")] => {
            world.lose_node();
            Ok(())
        }
        [Word("switch"), Word("to"), Word(name)] => world.switch(name),
        [Word("clock"), Word("ticks")] => world.submit(Actor::Clock, Command::Tick).map(drop),
        [Word(count), Word(unit), Word("pass" | "passes")] => {
            world.now = world.now.plus(span(count, unit)?);
            Ok(())
        }
        [Word("client"), Word("says" | "starts" | "cancels" | "erases"), ..] => {
            clients::take(world, &toks[1..])
        }
        [Word("model"), rest @ ..] => model::take(world, rest),
        [Word("worker"), rest @ ..] => nodes::take(world, rest),
        [Word("outside"), Word("worker"), Word(name), rest @ ..] => outside::take(world, name, rest),
        [Word("outside"), Word("system"), rest @ ..] => people::callback(world, rest),
        [Word(name), rest @ ..] => people::take(world, name, rest),
        [] | [Text(_) | Json(_), ..] => Err("a sentence begins with a word".into()),
    }
}
