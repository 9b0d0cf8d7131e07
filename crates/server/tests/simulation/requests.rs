//! The oracle of what models were asked with: every request against the log that is there in the end.
//!
//! Each reply names its request, so a stored one is compared as a whole with what stands before it in the log. Of the
//! other requests everything that was in them must be in the log of their run: a decision or report that lost its race may
//! not even have been asked about. What tools are asked with is compared by `facts.rs`: their arguments with the decisions.

use std::collections::BTreeSet;

use standfast_core::event::{Envelope, Event};
use standfast_core::id::{RunId, Seq};
use standfast_core::transcript::{AssistantReply, Entry, UserMessage, transcript};

use crate::facts::text;

/// What a model was asked with, in the order in which they were asked.
pub(crate) type Requests = Vec<Vec<Entry>>;

/// The words of a reply, which name its request.
pub(crate) fn words(request: usize) -> String {
    format!("So be it, as asked in {request}.")
}

/// The request that a reply names.
fn request_of(words: &str) -> Option<usize> {
    words.strip_prefix("So be it, as asked in ")?.strip_suffix('.')?.parse().ok()
}

/// Everything that models were asked with and that is not so.
pub(crate) fn wrong_requests(requests: &Requests, logs: &[(RunId, Vec<Envelope>)]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (run, log) in logs {
        wrong.extend(wrong_replies(requests, log).into_iter().map(|why| format!("{why} in {run}")));
    }
    let logs: Vec<(Option<String>, BTreeSet<String>)> =
        logs.iter().map(|(_, log)| (first(&transcript(log)), contents(log))).collect();
    for (no, request) in requests.iter().enumerate() {
        let begins = first(request);
        let mut foreign: Option<String> = Some("its run does not exist".into());
        for (_, contents) in logs.iter().filter(|(first, _)| *first == begins) {
            let lost = |entry: &&Entry| !contents.contains(&plain(entry));
            foreign = request.iter().find(lost).map(plain);
            if foreign.is_none() {
                break;
            }
        }
        wrong.extend(
            foreign.map(|what| format!("I2: request {no} to a model has what is not stored: {what}")),
        );
    }
    wrong
}

/// Replies that are stored and were asked with something else than what stands before them.
fn wrong_replies(requests: &Requests, log: &[Envelope]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (at, envelope) in log.iter().enumerate() {
        let Event::ModelReplied(replied) = &envelope.event else { continue };
        let words = replied.reply.text.as_ref().map(text).unwrap_or_default();
        let Some(request) = request_of(&words).and_then(|no| requests.get(no)) else {
            wrong.push(format!("I2: a reply names no request: {words}"));
            continue;
        };
        let mut stored = transcript(&log[..at]);
        let is_user = |entry: &&Entry| matches!(entry, Entry::User(_));
        let mut told = stored.iter().filter(is_user).count();
        // What came while the model was thinking it has not heard.
        while told > replied.heard as usize && stored.last().as_ref().is_some_and(is_user) {
            stored.pop();
            told -= 1;
        }
        let (asked, stored): (Vec<String>, Vec<String>) =
            (request.iter().map(plain).collect(), stored.iter().map(plain).collect());
        if asked != stored {
            wrong.push(format!("I2: {words} It was asked with {asked:?}, stored is {stored:?}"));
        }
    }
    wrong
}

/// Everything that a model of this run may have been told at some time.
fn contents(log: &[Envelope]) -> BTreeSet<String> {
    (1..=log.len()).flat_map(|to| transcript(&log[..to])).map(|entry| plain(&entry)).collect()
}

/// The first message of a conversation, which names its run.
fn first(entries: &[Entry]) -> Option<String> {
    entries.iter().find(|entry| matches!(entry, Entry::User(_))).map(plain)
}

/// An entry without its position, which moves when somebody else's append comes first.
fn plain(entry: &Entry) -> String {
    let entry = match entry.clone() {
        Entry::User(message) => Entry::User(UserMessage { seq: Seq(0), ..message }),
        Entry::Assistant(reply) => Entry::Assistant(AssistantReply { seq: Seq(0), ..reply }),
        Entry::Tool(result) => Entry::Tool(result),
    };
    format!("{entry:?}")
}
