//! What a message to a task decides (C5, C20, C23, C26): data parts first, then single words, else nothing.
//!
//! Pure: says what was meant, never whether it may be. A hold is decided only by something that cannot be mistaken for
//! anything else: by its id, or by whoever was just shown it and nothing else. Whatever looks like a decision and is none leaves the task as it is, with the reason in words. Results
//! of tools and calls inside a message are only words (T1).

#[cfg(test)]
mod tests;

use serde::Deserialize;
use serde_json::value::RawValue;
use standfast_core::body::Body;
use standfast_core::command::Choice;
use standfast_core::digest::Digest;
use standfast_core::hold::{Ask, HoldKind};
use standfast_core::id::{CallId, HoldId, RunId};
use standfast_core::json::RawJson;
use standfast_core::text_decisions::{APPROVE, DENY, TextMeaning as Words, read_text};
use standfast_core::time::Timestamp;
use standfast_engine::{ImpliedHold, ShownHold};

use super::error::A2aError;
use super::operations::QuestionPaging;
use super::wire;

/// An open hold of a task, or of a sub-run of it.
#[derive(Debug, Clone)]
pub(super) struct PendingHold {
    pub(super) id: HoldId,
    pub(super) kind: HoldKind,
    pub(super) ask: Ask,
    /// When it expired, if it is kept all the same.
    pub(super) expired_at: Option<Timestamp>,
    /// Whether its call was asked about before: then the call alone does not say which of its holds is meant.
    pub(super) is_asked_again: bool,
}

/// What is pending, for reading a message.
#[derive(Debug)]
pub(super) struct PendingTask {
    pub(super) task: RunId,
    pub(super) open: Vec<PendingHold>,
    /// The hold that a decision without an id means.
    pub(super) implied: ImpliedMeaning,
    /// How the sender is asked: the loops of the dialect say `decision` also where a question wants an answer.
    pub(super) asks: QuestionPaging,
}

/// What a decision without an id means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ImpliedMeaning {
    /// This hold, as its sender was shown it.
    Hold(ShownHold),
    /// Nothing, because its sender was not shown it, or not alone, or not as it is.
    Nothing {
        /// In words.
        why: &'static str,
        /// Whether its sender was shown something that it may have been meant for.
        is_late: bool,
    },
}

impl ImpliedMeaning {
    /// What the engine says of it.
    pub(super) fn of(implied: ImpliedHold) -> ImpliedMeaning {
        let nothing = |why, is_late| ImpliedMeaning::Nothing { why, is_late };
        match implied {
            ImpliedHold::Hold(hold) => ImpliedMeaning::Hold(hold),
            ImpliedHold::NotShown => {
                nothing("it names no hold, and you have not been shown what this task asks", false)
            }
            ImpliedHold::Outdated => nothing(
                "it names no hold, and what you were last shown of this task is closed or has changed",
                true,
            ),
            ImpliedHold::Several => nothing("it names no hold, and several are open", false),
            ImpliedHold::Answered => nothing(
                "this message was answered before and decides nothing else; a new one needs a new messageId",
                true,
            ),
        }
    }

    /// Where only decisions with ids count.
    pub(super) const STRICT: ImpliedMeaning = ImpliedMeaning::Nothing {
        why: "it names no hold, and this server takes decisions with hold_id only",
        is_late: false,
    };
}

/// What a message means.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum MessageMeaning {
    /// It decides these holds, in this order.
    Decides(Vec<ReadDecision>),
    /// It is something said to the agent.
    Says,
    /// It was meant to decide and decides nothing; why.
    Nothing(String),
}

/// A decision that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReadDecision {
    pub(super) hold: HoldId,
    pub(super) wanted: Choice,
    /// The digest that its sender repeats.
    pub(super) digest: Option<Digest>,
    /// What was shown of it, where it was not named.
    pub(super) shown: Option<ShownHold>,
    /// The member of the request that has the value, for errors about it.
    pub(super) field: String,
}

/// A data part that decides.
#[derive(Debug, Deserialize)]
struct Data {
    decision: Option<String>,
    modified_input: Option<Box<RawValue>>,
    reason: Option<String>,
    result: Option<Box<RawValue>>,
    #[serde(default, deserialize_with = "even_null")]
    answer: Option<Box<RawValue>>,
    hold_id: Option<String>,
    #[serde(default)]
    hold_ids: Vec<String>,
    tool_call_id: Option<String>,
    digest: Option<String>,
}

fn even_null<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

/// Why a part decides nothing: an error where the value itself is wrong, words otherwise.
enum NoDecision {
    Wrong(A2aError),
    Said(String),
}

type Read<T> = Result<T, NoDecision>;

/// What a message means to a task that waits for this.
pub(super) fn read(message: &wire::Message, waiting: &PendingTask) -> Result<MessageMeaning, A2aError> {
    let mut decided = Vec::new();
    for (at, part) in message.parts.iter().enumerate() {
        let Some(data) = part.data.as_ref().filter(|data| is_decision(data)) else { continue };
        match waiting.read_data(&format!("message.parts[{at}].data"), data) {
            Ok(read) => decided.extend(read),
            Err(NoDecision::Wrong(error)) => return Err(error),
            Err(NoDecision::Said(why)) => return Ok(MessageMeaning::Nothing(why)),
        }
    }
    if !decided.is_empty() {
        return Ok(match twice(&decided) {
            Some(hold) => MessageMeaning::Nothing(format!("the message decides {hold} more than once")),
            None => MessageMeaning::Decides(decided),
        });
    }
    Ok(waiting.read_words(&text(message)))
}

/// Whether what a message means depends on what its sender was shown: it decides without naming a hold, or its words may.
pub(super) fn names_none(message: &wire::Message, is_waiting: bool) -> bool {
    let mut decides =
        message.parts.iter().filter_map(|part| part.data.as_ref()).filter(|data| is_decision(data));
    let mut has_data = false;
    let names_none = decides.any(|data| {
        has_data = true;
        let data = serde_json::from_str::<Data>(data.get());
        data.is_ok_and(|data| {
            data.hold_ids.is_empty() && data.hold_id.is_none() && data.tool_call_id.is_none()
        })
    });
    let text = text(message);
    names_none || !has_data && !text.is_empty() && (is_waiting || is_word(&text))
}

/// Whether a message is there to decide, of whatever: by a data part, or by its one word.
pub(super) fn is_meant_to_decide(message: &wire::Message) -> bool {
    let mut data = message.parts.iter().filter_map(|part| part.data.as_ref());
    data.any(|data| is_decision(data)) || is_word(&text(message))
}

/// Whether a message names calls rather than holds.
pub(super) fn names_calls(message: &wire::Message) -> bool {
    let data = message.parts.iter().filter_map(|part| part.data.as_ref()).filter(|data| is_decision(data));
    let data = data.filter_map(|data| serde_json::from_str::<Data>(data.get()).ok());
    data.into_iter().any(|data| data.tool_call_id.is_some())
}

fn text(message: &wire::Message) -> String {
    let texts: Vec<&str> = message.parts.iter().filter_map(|part| part.text.as_deref()).collect();
    texts.join("\n")
}

/// Whether a text is one of the words that decide.
fn is_word(text: &str) -> bool {
    let word = text.trim().to_lowercase();
    APPROVE.contains(&word.as_str()) || DENY.contains(&word.as_str())
}

fn twice(decided: &[ReadDecision]) -> Option<HoldId> {
    let repeated = |(at, one): (usize, &ReadDecision)| {
        decided.iter().take(at).any(|other| other.hold == one.hold).then_some(one.hold)
    };
    decided.iter().enumerate().find_map(repeated)
}

/// Whether a data part is meant to decide: an object that says `decision` or `answer`.
fn is_decision(data: &RawValue) -> bool {
    let members: Result<wire::Object, _> = serde_json::from_str(data.get());
    members.is_ok_and(|members| members.contains_key("decision") || members.contains_key("answer"))
}

impl PendingTask {
    /// When an open hold expired, if it is kept all the same.
    pub(super) fn expired_at(&self, hold: HoldId) -> Option<Timestamp> {
        self.open.iter().find(|open| open.id == hold)?.expired_at
    }

    fn read_data(&self, field: &str, data: &RawValue) -> Read<Vec<ReadDecision>> {
        let ambiguous = RawJson::parse(data.get()).err().map(|bad| bad.to_string());
        if let Some(why) = ambiguous {
            return Err(NoDecision::Wrong(A2aError::invalid(field, why)));
        }
        let data: Data = serde_json::from_str(data.get())
            .map_err(|error| NoDecision::Said(format!("{field} is not a decision: {error}")))?;
        let digest = data.digest.as_deref().map(str::parse).transpose().map_err(|_| {
            let why = "is not a digest; send the digest shown with the hold";
            NoDecision::Wrong(A2aError::invalid(format!("{field}.digest"), why))
        })?;
        self.meant(&data)?
            .into_iter()
            .map(|NamedHold { hold, kind, shown }| {
                let answer = self.answered_by_word(hold, &data);
                let (wanted, member) = answer.map_or_else(|| wanted(field, &data, kind), Ok)?;
                Ok(ReadDecision { hold, wanted, digest, shown, field: format!("{field}{member}") })
            })
            .collect()
    }

    /// The answer to a question, where a loop that knows only `decision` sends it as one.
    fn answered_by_word(&self, hold: HoldId, data: &Data) -> Option<(Choice, &'static str)> {
        let is_wordy = self.asks == QuestionPaging::OneByOne && data.answer.is_none();
        let word = data.decision.as_deref().filter(|_| is_wordy)?;
        let open = self.open.iter().find(|open| open.id == hold && open.kind == HoldKind::Input)?;
        let is_option = open.ask.options.iter().any(|option| option == word);
        let is_denied = !is_option && DENY.contains(&word.trim().to_lowercase().as_str());
        match read_text(open.kind, &open.ask, word) {
            Words::Decide(wanted) if !is_denied => Some((wanted, ".decision")),
            Words::CheckAnswer(json) if !is_denied => {
                Some((Choice::Answer { value: words(json) }, ".decision"))
            }
            Words::Decide(_) | Words::CheckAnswer(_) | Words::NotADecision => None,
        }
    }

    /// The holds that a decision names, or the one that its sender was shown.
    fn meant(&self, data: &Data) -> Read<Vec<NamedHold>> {
        let mut ids: Vec<&str> = data.hold_ids.iter().map(String::as_str).collect();
        ids.extend(data.hold_id.as_deref());
        let mut holds = Vec::new();
        for id in ids {
            holds.push(self.named(id)?);
        }
        if let Some(call) = &data.tool_call_id {
            let of_call = |open: &&PendingHold| {
                let no = open.id.key.call;
                CallId { run: open.id.run, no }.to_string() == *call
            };
            let found = self.open.iter().find(of_call);
            let found =
                found.ok_or_else(|| NoDecision::Said(format!("no open hold is about the call {call}")))?;
            if holds.iter().all(|named| named.hold != found.id) {
                let shown = match &self.implied {
                    ImpliedMeaning::Hold(shown) if shown.id == found.id => Some(*shown),
                    ImpliedMeaning::Hold(_) | ImpliedMeaning::Nothing { .. } => None,
                };
                if found.is_asked_again && shown.is_none() {
                    let why = format!(
                        "{call} was asked about before, and you were not shown what it asks now alone"
                    );
                    return Err(NoDecision::Said(why));
                }
                holds.push(NamedHold { hold: found.id, kind: Some(found.kind), shown });
            }
        }
        match (holds.is_empty(), &self.implied) {
            (false, _) => Ok(holds),
            (true, ImpliedMeaning::Hold(shown)) => {
                let named = self.named(&shown.id.to_string())?;
                Ok(vec![NamedHold { shown: Some(*shown), ..named }])
            }
            (true, ImpliedMeaning::Nothing { why, .. }) => Err(NoDecision::Said((*why).to_owned())),
        }
    }

    /// A hold by its id. One of this task that is no longer open is passed on, so that its record answers.
    fn named(&self, id: &str) -> Read<NamedHold> {
        let unknown = || NoDecision::Said(format!("{id} is not a hold of this task"));
        let hold: HoldId = id.parse().map_err(|_| unknown())?;
        match self.open.iter().find(|open| open.id == hold) {
            Some(open) => Ok(NamedHold { hold, kind: Some(open.kind), shown: None }),
            None if hold.run == self.task => Ok(NamedHold { hold, kind: None, shown: None }),
            None => Err(unknown()),
        }
    }

    fn read_words(&self, text: &str) -> MessageMeaning {
        let shown = match &self.implied {
            ImpliedMeaning::Hold(shown) => shown,
            ImpliedMeaning::Nothing { why, is_late } => {
                let asks = |kind| self.open.iter().any(|open| open.kind == kind);
                let is_late = *is_late && self.open.is_empty();
                let may_decide =
                    asks(HoldKind::Input) || is_word(text) && (asks(HoldKind::Approval) || is_late);
                return if may_decide && !text.is_empty() {
                    MessageMeaning::Nothing((*why).to_owned())
                } else {
                    MessageMeaning::Says
                };
            }
        };
        let Some(open) = self.open.iter().find(|open| open.id == shown.id).filter(|_| !text.is_empty())
        else {
            return MessageMeaning::Says;
        };
        let decides = |wanted| {
            let field = "message.parts".to_owned();
            MessageMeaning::Decides(vec![ReadDecision {
                hold: open.id,
                wanted,
                digest: None,
                shown: Some(*shown),
                field,
            }])
        };
        match read_text(open.kind, &open.ask, text) {
            Words::Decide(wanted) => decides(wanted),
            Words::CheckAnswer(json) => decides(Choice::Answer { value: words(json) }),
            Words::NotADecision => MessageMeaning::Says,
        }
    }
}

/// A hold that a decision is about.
struct NamedHold {
    hold: HoldId,
    /// None when it is no longer open.
    kind: Option<HoldKind>,
    /// What was shown of it, where it was not named.
    shown: Option<ShownHold>,
}

/// What a data part wants of a hold of this kind, and the member that has the value.
fn wanted(field: &str, data: &Data, kind: Option<HoldKind>) -> Read<(Choice, &'static str)> {
    let word = data.decision.as_deref().map(|word| word.trim().to_lowercase());
    let word = word.as_deref();
    let is_one_of = |words: &[&str]| word.is_some_and(|word| words.contains(&word));
    if data.modified_input.is_some() && word != Some("modify") {
        let why = "belongs to the decision modify; nothing was decided";
        return Err(NoDecision::Wrong(A2aError::invalid(format!("{field}.modified_input"), why)));
    }
    let deny = || (Choice::Deny { reason: data.reason.clone() }, ".decision");
    let no = |takes: &str| {
        let said = word.map_or_else(|| "an answer".to_owned(), |word| format!("“{word}”"));
        Err(NoDecision::Said(format!("{said} does not decide this hold; it takes {takes}")))
    };
    match kind {
        // It is decided already: its record answers. Nothing that was not said to approve is passed on as approval.
        None => match word {
            Some("modify") => Ok((modified(field, data)?, ".modified_input")),
            _ if is_one_of(&APPROVE) => Ok((Choice::Approve, ".decision")),
            _ => Ok(deny()),
        },
        Some(HoldKind::Approval) => match word {
            Some("modify") => Ok((modified(field, data)?, ".modified_input")),
            _ if is_one_of(&APPROVE) => Ok((Choice::Approve, ".decision")),
            _ if is_one_of(&DENY) => Ok(deny()),
            _ => no("approve, deny or modify"),
        },
        Some(HoldKind::Input | HoldKind::Auth) => match &data.answer {
            Some(answer) if word.is_none_or(|word| word == "answer") => {
                Ok((Choice::Answer { value: value(field, answer)? }, ".answer"))
            }
            _ if is_one_of(&DENY) => Ok(deny()),
            _ => no("an answer, or deny"),
        },
        Some(HoldKind::Recovery) => match word {
            Some("run_again") => Ok((Choice::Approve, ".decision")),
            Some("happened") => {
                let value =
                    data.result.as_ref().map_or_else(|| Ok(Body::text("")), |raw| value(field, raw))?;
                Ok((Choice::Answer { value }, ".result"))
            }
            Some("did_not_happen") => Ok(deny()),
            _ => no("run_again, happened or did_not_happen"),
        },
        Some(HoldKind::External) => no("only what the outside system itself reports"),
    }
}

/// New arguments: a JSON text, or the value itself.
fn modified(field: &str, data: &Data) -> Read<Choice> {
    let wrong = |why: String| NoDecision::Wrong(A2aError::invalid(format!("{field}.modified_input"), why));
    // Whoever answers with the word alone, as the options offer it, is asked again.
    let missing = || {
        let why = "modify needs modified_input beside it, all arguments as JSON; or approve, or deny";
        NoDecision::Said(why.to_owned())
    };
    let raw = data.modified_input.as_ref().ok_or_else(missing)?;
    let text = serde_json::from_str::<String>(raw.get()).unwrap_or_else(|_| raw.get().to_owned());
    // A prompt or form that was left empty sends a blank text.
    if text.trim().is_empty() {
        return Err(missing());
    }
    let arguments = RawJson::parse(&text).map_err(|bad| wrong(bad.to_string()))?;
    Ok(Choice::ApproveEdited { arguments })
}

fn value(field: &str, raw: &RawValue) -> Read<Body> {
    let wrong = |why: String| NoDecision::Wrong(A2aError::invalid(field, why));
    RawJson::parse(raw.get()).map(words).map_err(|bad| wrong(bad.to_string()))
}

/// A JSON string is a text.
fn words(json: RawJson) -> Body {
    serde_json::from_str::<String>(json.text()).map_or(Body::Json(json), Body::Text)
}
