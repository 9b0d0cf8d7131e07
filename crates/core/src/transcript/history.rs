//! What came before a run in its conversation: the earlier runs that its start names, as the model is reminded of them.
//!
//! Which runs these are, and how far each is read, was settled when the run began, so every node and every later turn sees
//! the same. How they are shortened depends on nothing but them and the budget that the start names. Who chooses the runs
//! is not known here.

use std::collections::BTreeMap;

use super::{AssistantReply, CallResult, Entry, ReplyCall, UserMessage, transcript};
use crate::body::Body;
use crate::definition::Definition;
use crate::event::{Envelope, Event, History, Outcome, RunEnded};
use crate::id::{CallNo, Seq};
use crate::message::{Message, Part};

/// Bytes that are counted as a token: an estimate that is the same everywhere.
const BYTES_A_TOKEN: u64 = 4;
/// Bytes of a result of an earlier run that a model is reminded of.
const RESULT_BYTES: usize = 2_000;
/// Calls of earlier runs are numbered from here, so that none has the number of a call of the run itself.
const FIRST_CALL: u32 = 1 << 31;

/// What is said instead of what is left out.
fn omission(runs: usize) -> String {
    match runs {
        1 => "(1 earlier request of this conversation is left out.)".to_owned(),
        runs => format!("({runs} earlier requests of this conversation are left out.)"),
    }
}

/// The conversation before a run. `logs` are the events of the runs that its history names, in that order and with large
/// values filled in; one that was erased since is empty.
///
/// Within the budget the newest runs come whole. From the first that does not fit on, a run comes with its words alone:
/// without calls, results and files. What does not fit even so is left out with all that is older, and a note says so.
#[must_use]
pub fn history(pinned: &History, logs: &[Vec<Envelope>], definition: &Definition) -> Vec<Entry> {
    let mut left = u64::from(pinned.tokens).saturating_mul(BYTES_A_TOKEN);
    let mut numbers = Numbers(FIRST_CALL);
    let (mut newest_first, mut is_whole, mut omitted) = (Vec::new(), true, 0);
    let read = pinned.runs.iter().zip(logs).rev();
    let read = read.map(|(earlier, log)| log.iter().take_while(|one| one.seq <= earlier.upto).cloned());
    let mut read = read.map(Iterator::collect::<Vec<Envelope>>).filter(|events| !events.is_empty());
    for events in read.by_ref() {
        let whole = is_whole.then(|| whole(&events, definition, &mut numbers));
        let fitting = whole.filter(|entries| bytes(entries) <= left);
        is_whole = fitting.is_some();
        let fitting = fitting.or_else(|| Some(words(&events)).filter(|entries| bytes(entries) <= left));
        let Some(entries) = fitting else {
            omitted = 1;
            break;
        };
        left -= bytes(&entries);
        newest_first.push(entries);
    }
    omitted += if omitted == 0 { 0 } else { read.count() };
    let note = (omitted > 0).then(|| said(Message::text(omission(omitted))));
    note.into_iter().chain(newest_first.into_iter().rev().flatten()).collect()
}

/// Numbers for calls of earlier runs.
struct Numbers(u32);

impl Numbers {
    fn give(&mut self) -> CallNo {
        let no = CallNo(self.0);
        self.0 = self.0.saturating_add(1);
        no
    }
}

/// A run with its calls and their results, but for calls of tools that the agent no longer has: providers refuse what
/// they have no definition of.
fn whole(events: &[Envelope], definition: &Definition, numbers: &mut Numbers) -> Vec<Entry> {
    let mut given: BTreeMap<CallNo, CallNo> = BTreeMap::new();
    let mut entries = Vec::new();
    for entry in transcript(events) {
        match entry {
            Entry::User(message) => entries.push(said(bare(message.message))),
            Entry::Assistant(reply) => {
                let known = reply.calls.into_iter().filter(|call| definition.tools.contains_key(&call.tool));
                let calls = known.map(|call| {
                    let no = numbers.give();
                    given.insert(call.no, no);
                    // The provider's own ids may come again in the run itself.
                    ReplyCall { no, id: String::new(), ..call }
                });
                let calls: Vec<_> = calls.collect();
                if reply.text.is_some() || !calls.is_empty() {
                    entries.push(replied(reply.text, calls));
                }
            }
            Entry::Tool(result) => {
                let Some(no) = given.get(&result.call) else { continue };
                let content = shortened(&result);
                entries.push(Entry::Tool(CallResult { call: *no, id: String::new(), content, ..result }));
            }
        }
    }
    entries.extend(last_word(events, &entries));
    entries
}

/// A run with its words alone.
fn words(events: &[Envelope]) -> Vec<Entry> {
    let mut entries = Vec::new();
    for entry in transcript(events) {
        match entry {
            Entry::User(UserMessage { message, .. }) => {
                let parts = message.parts.into_iter().map(|part| match part {
                    Part::Text(_) | Part::Data(_) => part,
                    Part::File { name, .. } => {
                        let name = name.unwrap_or_else(|| "without a name".to_owned());
                        Part::Text(Body::text(format!("(a file: {name})")))
                    }
                });
                entries.push(said(Message::of(parts.collect())));
            }
            Entry::Assistant(AssistantReply { text: Some(text), .. }) => {
                entries.push(replied(Some(text), Vec::new()));
            }
            Entry::Assistant(_) | Entry::Tool(_) => {}
        }
    }
    entries.extend(last_word(events, &entries));
    entries
}

/// The result of a run, where no reply says it: what an outside worker delivered, or that it has no result and why.
fn last_word(events: &[Envelope], entries: &[Entry]) -> Option<Entry> {
    let ended = events
        .iter()
        .rev()
        .find_map(|envelope| if let Event::RunEnded(ended) = &envelope.event { Some(ended) } else { None })?;
    let RunEnded { outcome, reason, result } = ended;
    if let Some(result) = result {
        return Some(replied(Some(result.clone()), Vec::new()));
    }
    let why = reason.as_ref().map_or(String::new(), |why| format!(": {why}"));
    let text = match outcome {
        Outcome::Completed => match entries.last() {
            Some(Entry::Assistant(_)) => return None,
            Some(Entry::User(_) | Entry::Tool(_)) | None => {
                "(This request was completed without words.)".into()
            }
        },
        Outcome::Failed => format!("(This request failed{why})"),
        Outcome::Canceled => format!("(This request was canceled{why})"),
        Outcome::Rejected => format!("(This request was rejected{why})"),
    };
    Some(replied(Some(Body::text(text)), Vec::new()))
}

fn said(message: Message) -> Entry {
    Entry::User(UserMessage { seq: Seq(0), message })
}

/// A message without what models do not read.
fn bare(message: Message) -> Message {
    Message::of(message.parts)
}

fn replied(text: Option<Body>, calls: Vec<ReplyCall>) -> Entry {
    Entry::Assistant(AssistantReply { seq: Seq(0), text, calls, opaque: None, model: None })
}

fn shortened(result: &CallResult) -> Body {
    let Some(text) = result.content.inline().filter(|text| text.len() > RESULT_BYTES) else {
        return result.content.clone();
    };
    let end = text.floor_char_boundary(RESULT_BYTES);
    let shown = text.get(..end).unwrap_or_default();
    Body::text(format!("{shown}\n[{} more bytes are left out]", text.len() - end))
}

/// What entries count for.
fn bytes(entries: &[Entry]) -> u64 {
    let length =
        |body: &Body| body.blob().map_or_else(|| body.inline().map_or(0, str::len) as u64, |blob| blob.bytes);
    let entry = |entry: &Entry| match entry {
        Entry::User(said) => said
            .message
            .parts
            .iter()
            .map(|part| match part {
                Part::Text(body) | Part::Data(body) | Part::File { content: body, .. } => length(body),
            })
            .sum(),
        Entry::Assistant(reply) => {
            let calls =
                reply.calls.iter().map(|call| length(&call.arguments) + call.tool.as_str().len() as u64);
            reply.text.as_ref().map_or(0, length) + calls.sum::<u64>()
        }
        Entry::Tool(result) => length(&result.content) + result.ran_with.as_ref().map_or(0, length),
    };
    entries.iter().map(entry).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Choice;
    use crate::event::EarlierRun;
    use crate::message::ToolResult;
    use crate::testing::Story;

    /// A run that was approved a call, with these words at its end.
    fn told(result: &str, answer: &str) -> Story {
        let mut story = Story::new();
        story.replies("I write", &[("write", r#"{"n":1}"#)]);
        story.decides(1, Choice::Approve);
        story.begins(1);
        story.finishes(1, ToolResult::Ok(Body::text(result)));
        story.replies(answer, &[]);
        story
    }

    fn pinned(stories: &[Story], tokens: u32) -> (History, Vec<Vec<Envelope>>) {
        let runs = stories.iter().map(|story| EarlierRun {
            run: story.run.facts.id,
            upto: story.events.last().map_or(Seq(0), |envelope| envelope.seq),
        });
        (History { tokens, runs: runs.collect() }, stories.iter().map(|story| story.events.clone()).collect())
    }

    fn lines(stories: &[Story], tokens: u32) -> Vec<String> {
        let (pinned, logs) = pinned(stories, tokens);
        let line = |entry: &Entry| match entry {
            Entry::User(said) => format!("user: {}", said.message.words()),
            Entry::Assistant(reply) => {
                let words = reply.text.as_ref().and_then(Body::inline).unwrap_or_default();
                let calls = reply.calls.iter().map(|call| format!("{}:{}", call.no, call.tool));
                format!("model: {words} [{}]", calls.collect::<Vec<_>>().join(" "))
            }
            Entry::Tool(result) => format!("{}: {}", result.call, result.told().unwrap()),
        };
        history(&pinned, &logs, &stories[0].definition).iter().map(line).collect()
    }

    #[test]
    fn within_the_budget_earlier_runs_come_whole_and_in_order() {
        let lines = lines(&[told("wrote 1", "done one"), told("wrote 2", "done two")], 1_000);
        assert_eq!(
            lines,
            [
                "user: tidy up",
                "model: I write [2147483649:write]",
                "2147483649: wrote 1",
                "model: done one []",
                "user: tidy up",
                "model: I write [2147483648:write]",
                "2147483648: wrote 2",
                "model: done two []",
            ]
        );
    }

    #[test]
    fn what_does_not_fit_keeps_its_words_and_then_nothing() {
        let stories =
            [told("wrote 1", "done one"), told(&"x".repeat(400), "done two"), told("wrote 3", "done three")];
        // The newest whole (41 bytes), the middle one by its words (22), the oldest left out.
        assert_eq!(
            lines(&stories, 17),
            [
                "user: (1 earlier request of this conversation is left out.)",
                "user: tidy up",
                "model: I write []",
                "model: done two []",
                "user: tidy up",
                "model: I write [2147483648:write]",
                "2147483648: wrote 3",
                "model: done three []",
            ]
        );
        assert_eq!(lines(&stories, 1), ["user: (3 earlier requests of this conversation are left out.)"]);
    }

    #[test]
    fn long_results_are_cut_and_unknown_tools_are_not_named() {
        let mut story = told(&"ü".repeat(1_500), "done");
        let shown = lines(std::slice::from_ref(&story), 10_000);
        assert!(shown[2].ends_with("ü\n[1000 more bytes are left out]"), "{shown:?}");
        story.definition.tools.clear();
        assert_eq!(lines(&[story], 10_000), ["user: tidy up", "model: I write []", "model: done []"]);
    }

    #[test]
    fn a_run_is_read_as_far_as_it_was_when_it_was_pinned_and_an_erased_one_is_no_part() {
        let stories = [told("wrote 1", "done one"), told("wrote 2", "done two")];
        let (mut pinned, mut logs) = pinned(&stories, 1_000);
        let whole = history(&pinned, &logs, &stories[0].definition);
        pinned.runs[1].upto = Seq(2);
        let cut = history(&pinned, &logs, &stories[0].definition);
        assert_eq!(cut.len(), 5, "{cut:?}");
        logs[0].clear();
        assert_eq!(history(&pinned, &logs, &stories[0].definition).len(), 1);
        assert_eq!(whole.len(), 8);
    }

    #[test]
    fn a_run_without_a_result_says_so() {
        let mut story = Story::new();
        story.by(
            crate::actor::Actor::Client(crate::testing::user("alice")),
            crate::command::Command::Cancel { reason: Some("not today".into()) },
        );
        assert_eq!(
            lines(&[story], 100),
            ["user: tidy up", "model: (This request was canceled: not today) []"]
        );
    }
}
