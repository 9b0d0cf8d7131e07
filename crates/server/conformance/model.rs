//! The model of the conformance agent: does what the beginning of a message chooses (`behaviour.rs`).
//!
//! It is asked like any other model and knows nothing but the conversation, so a restart changes nothing. The message
//! that came last chooses; where that chooses nothing, what the first one chose goes on.

use serde::Deserialize;
use serde_json::value::RawValue;
use standfast_core::body::Body;
use standfast_core::command::AskedCall;
use standfast_core::json::RawJson;
use standfast_core::message::{Message, Part};
use standfast_core::time::Millis;
use standfast_core::transcript::{Entry, ResultKind};
use standfast_engine::model::{GivesUp, Live, Model, ModelFuture, ModelReply, Prompt};
use standfast_engine::tool::suspend;
use standfast_tools::a2a::canned_client;

use crate::agent::{FOR_EVER, LOGIN};
use crate::behaviour::{Behaviour, Made, chosen};

/// How long before each piece of words that are heard piece by piece: whoever follows should be there for all of them.
const PIECE: Millis = Millis(300);

/// Does what messages choose.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KitModel {
    /// What it does with a message that chooses nothing.
    pub(crate) anything_else: Behaviour,
}

impl Model for KitModel {
    fn ask<'a>(&'a self, prompt: Prompt, live: &'a Live) -> ModelFuture<'a> {
        Box::pin(async move {
            Ok(match turn(&prompt.transcript, self.anything_else) {
                Does::Says { after, pieces } => {
                    live.sleep(after).await;
                    for piece in pieces.iter().filter(|_| pieces.len() > 1) {
                        live.sleep(PIECE).await;
                        live.delta(piece);
                    }
                    let text = (!pieces.is_empty()).then(|| pieces.concat());
                    ModelReply { text, ..ModelReply::default() }
                }
                Does::Makes(made) => ModelReply { parts: vec![part(made)], ..ModelReply::default() },
                Does::Parses { operation, payload } => {
                    let parsed = canned_client::parse(&operation, &payload).await.to_string();
                    let parsed = RawJson::parse(&parsed).map_or_else(|_| Body::text(&parsed), Body::Json);
                    ModelReply { parts: vec![Part::Data(parsed)], ..ModelReply::default() }
                }
                Does::Calls(tool, arguments) => ModelReply {
                    calls: vec![AskedCall {
                        id: format!("call_{}", prompt.turn + 1),
                        tool: tool.to_owned(),
                        arguments: arguments.to_owned(),
                        problem: None,
                    }],
                    ..ModelReply::default()
                },
                Does::GivesUp(how) => ModelReply { gives_up: Some(how), ..ModelReply::default() },
            })
        })
    }
}

/// What is done in one turn.
#[derive(Debug, PartialEq, Eq)]
enum Does {
    Says { after: Millis, pieces: &'static [&'static str] },
    Makes(Made),
    Parses { operation: String, payload: String },
    Calls(&'static str, &'static str),
    GivesUp(GivesUp),
}

/// What the conversation so far asks for.
fn turn(transcript: &[Entry], anything_else: Behaviour) -> Does {
    let said: Vec<&Message> = transcript.iter().filter_map(user).collect();
    let first = said.first().and_then(|message| choice(message));
    let own = said.last().and_then(|message| choice(message));
    let goes_on = said.len() > 1 && own.is_none();
    let behaviour = own.or(first).unwrap_or(anything_else);
    // What somebody decided about the last question comes as the result of its call, on whatever surface they did.
    let answer = match transcript.last() {
        Some(Entry::Tool(result)) if result.kind == ResultKind::Ok => {
            Some(result.content.inline().unwrap_or_default().to_owned())
        }
        Some(Entry::Tool(_)) => Some(String::new()),
        Some(Entry::User(_) | Entry::Assistant(_)) | None => None,
    };
    let is_answered = answer.is_some();
    let words = answer.unwrap_or_else(|| said.last().map(|message| message.words()).unwrap_or_default());
    let done = Does::Says { after: Millis(0), pieces: &["Hello from TCK"] };
    match behaviour {
        Behaviour::Says { after, pieces } => Does::Says { after, pieces },
        Behaviour::Makes(made) => Does::Makes(made),
        Behaviour::AsksOnce if is_answered || goes_on => done,
        Behaviour::AsksUntilDone if is_done(&words) => done,
        Behaviour::AsksForLogin | Behaviour::WaitsForCancel if is_answered => done,
        Behaviour::AsksOnce => Does::Calls(
            suspend::NAME,
            r#"{"reason": "the kit wants it", "question": "More input is needed."}"#,
        ),
        Behaviour::AsksUntilDone => Does::Calls(
            suspend::NAME,
            r#"{"reason": "the kit wants it", "question": "Go on, and say done at the end."}"#,
        ),
        Behaviour::AsksForLogin => Does::Calls(LOGIN, "{}"),
        Behaviour::WaitsForCancel => Does::Calls(FOR_EVER, "{}"),
        Behaviour::Fails => Does::GivesUp(GivesUp::Fails("failed, as the kit wants it".into())),
        Behaviour::Rejects => Does::GivesUp(GivesUp::Rejects("rejected".into())),
        Behaviour::ParsesAsClient => said.last().and_then(|message| payload(message)).unwrap_or_else(|| {
            let why = "tck-client-parse needs a data part with operation and wire_payload";
            Does::GivesUp(GivesUp::Fails(why.into()))
        }),
        // Whoever asks for it over another surface than A2A gets a run like any other.
        Behaviour::AnswersDirectly => Does::Says { after: Millis(0), pieces: &["Direct message response"] },
    }
}

fn is_done(words: &str) -> bool {
    words.trim_start().get(..4).is_some_and(|word| word.eq_ignore_ascii_case("done"))
}

fn user(entry: &Entry) -> Option<&Message> {
    match entry {
        Entry::User(user) => Some(&user.message),
        Entry::Assistant(_) | Entry::Tool(_) => None,
    }
}

fn choice(message: &Message) -> Option<Behaviour> {
    let first_words = match message.parts.first() {
        Some(Part::Text(body)) => body.inline().unwrap_or_default(),
        Some(Part::Data(_) | Part::File { .. }) | None => "",
    };
    chosen(message.client_id.as_deref().unwrap_or_default(), first_words)
}

/// What is to be parsed: the data part that has it.
fn payload(message: &Message) -> Option<Does> {
    #[derive(Deserialize)]
    struct ParseRequest {
        operation: String,
        wire_payload: Box<RawValue>,
    }
    let data = message.parts.iter().filter_map(|part| match part {
        Part::Data(body) => body.inline(),
        Part::Text(_) | Part::File { .. } => None,
    });
    let mut requests = data.filter_map(|data| serde_json::from_str::<ParseRequest>(data).ok());
    let ParseRequest { operation, wire_payload } = requests.next()?;
    Some(Does::Parses { operation, payload: wire_payload.get().to_owned() })
}

fn part(made: Made) -> Part {
    let file = |content: &str| Part::File {
        name: Some("output.txt".into()),
        media_type: Some("text/plain".into()),
        content: Body::text(content),
    };
    match made {
        // "tck", in base 64.
        Made::File => file("dGNr"),
        Made::FileAtUrl => file("https://example.com/output.txt"),
        Made::Data => {
            let Ok(json) = RawJson::parse(r#"{"key":"value","count":42}"#) else {
                unreachable!("a constant")
            };
            Part::Data(Body::Json(json))
        }
    }
}

#[cfg(test)]
mod tests {
    use standfast_core::id::{CallNo, Seq};
    use standfast_core::name::ToolName;
    use standfast_core::transcript::{AssistantReply, CallResult, UserMessage};

    use super::*;
    use crate::behaviour::ANYTHING_ELSE;

    fn says(id: &str, text: &str) -> Entry {
        let message = Message { client_id: Some(id.into()), ..Message::text(text) };
        Entry::User(UserMessage { seq: Seq(2), message })
    }

    fn asked(kind: ResultKind, content: &str) -> [Entry; 2] {
        let reply = AssistantReply { seq: Seq(3), text: None, calls: Vec::new(), opaque: None, model: None };
        let result = CallResult {
            call: CallNo(1),
            id: String::new(),
            tool: ToolName::new(suspend::NAME).unwrap(),
            kind,
            content: Body::text(content),
            ran_with: None,
        };
        [Entry::Assistant(reply), Entry::Tool(result)]
    }

    fn asks(entries: &[Entry]) -> bool {
        matches!(turn(entries, ANYTHING_ELSE), Does::Calls(suspend::NAME, _))
    }

    fn completes(entries: &[Entry]) -> bool {
        turn(entries, ANYTHING_ELSE) == Does::Says { after: Millis(0), pieces: &["Hello from TCK"] }
    }

    /// The TCK sends further messages with ids that choose, ACTS sends words that choose nothing.
    #[test]
    fn a_turn_goes_on_with_what_the_first_message_chose() {
        let [reply, gone] = asked(ResultKind::Superseded, "{}");
        let with = |first: Entry, next: Entry| vec![first, reply.clone(), gone.clone(), next];
        assert!(asks(&[says("tck-input-required-1", "go")]));
        assert!(asks(&with(says("tck-input-required-1", "go"), says("tck-input-required-1", "more"))));
        assert!(completes(&with(says("tck-input-required-1", "go"), says("tck-complete-task-1", "end"))));
        assert!(completes(&with(says("m", "tck-input-required"), says("n", "here it is"))));
        assert!(asks(&with(says("m", "tck-multi-turn"), says("n", "here is more input"))));
        assert!(completes(&with(says("m", "tck-multi-turn"), says("n", "done"))));
    }

    /// Whoever decides on another surface answers the question itself.
    #[test]
    fn an_answer_is_a_turn_too() {
        let answered = |first: Entry, kind, content: &str| {
            let [reply, result] = asked(kind, content);
            vec![first, reply, result]
        };
        assert!(completes(&answered(says("m", "tck-input-required"), ResultKind::Ok, "blue")));
        assert!(asks(&answered(says("m", "tck-multi-turn"), ResultKind::Ok, "not yet")));
        assert!(completes(&answered(says("m", "tck-multi-turn"), ResultKind::Ok, "Done, thanks")));
        assert!(completes(&answered(says("m", "tck-auth-required"), ResultKind::Ok, "token")));
        assert!(completes(&answered(says("m", "tck-input-required"), ResultKind::Denied, "no")));
    }
}
