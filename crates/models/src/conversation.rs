//! A conversation as every provider understands it: turns, tools, ids that do not repeat, names that all of them take.
//!
//! How a provider spells it is for its own file. Its own blocks are handed back to it as they came, and to nobody else.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use standfast_core::body::Body;
use standfast_core::command::AskedCall;
use standfast_core::id::CallNo;
use standfast_core::json::{BadJson, RawJson};
use standfast_core::message::{Message, Part};
use standfast_core::name::ToolName;
use standfast_core::transcript::{AssistantReply, CallResult, Entry, ResultKind};
use standfast_engine::model::Prompt;

/// How long the name of a tool may be.
const NAME_MAX: usize = 64;

/// A conversation.
#[derive(Debug)]
pub(super) struct Conversation {
    /// The instructions; empty when there are none.
    pub(super) system: String,
    /// Who said what.
    pub(super) turns: Vec<Turn>,
    /// What the model may call.
    pub(super) tools: Vec<Offer>,
    /// How tools are called there.
    pub(super) names: Names,
}

/// A part of a conversation.
#[derive(Debug)]
pub(super) enum Turn {
    /// What a client said.
    User(Vec<Piece>),
    /// What the model said.
    Assistant(Assistant),
    /// The results of its calls, in the order of the calls.
    Results(Vec<ToolAnswer>),
}

/// A piece of what a client said.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// Words.
    Text(String),
    /// A picture.
    Image {
        /// What it is.
        media_type: String,
        /// Its bytes in base 64.
        base64: String,
    },
    /// A picture elsewhere.
    ImageAt(String),
}

/// What the model said.
#[derive(Debug, Default)]
pub(super) struct Assistant {
    /// Its words.
    pub(super) text: Option<String>,
    /// The calls it asked for.
    pub(super) calls: Vec<PastCall>,
    /// Its own blocks, when it is the same that made them.
    pub(super) own: Option<Box<RawValue>>,
}

/// A call as the model is reminded of it.
#[derive(Debug)]
pub(super) struct PastCall {
    /// An id that no other call has.
    pub(super) id: String,
    /// The tool, as it is called there.
    pub(super) name: String,
    /// The arguments as the model wrote them.
    pub(super) arguments: String,
}

/// The result of a call.
#[derive(Debug)]
pub(super) struct ToolAnswer {
    /// The id of the call.
    pub(super) id: String,
    /// The tool, as it is called there.
    pub(super) name: String,
    /// Its result.
    pub(super) text: String,
    /// Whether it did not do what was asked.
    pub(super) is_error: bool,
}

/// A tool that the model may call.
#[derive(Debug)]
pub(super) struct Offer {
    /// Its name there.
    pub(super) name: String,
    /// What it does.
    pub(super) description: String,
    /// JSON Schema of its arguments.
    pub(super) schema: RawJson,
}

/// The way that a provider speaks, and its model: whose blocks are whose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Maker<'a> {
    /// How it speaks.
    pub(super) dialect: &'a str,
    /// Its model.
    pub(super) model: &'a str,
}

/// A provider's own blocks as they are stored.
#[derive(Serialize, Deserialize)]
struct ProviderBlocks<'a> {
    dialect: &'a str,
    model: &'a str,
    #[serde(borrow)]
    content: &'a RawValue,
}

/// A provider's own blocks, ready to be stored.
pub(super) fn own(maker: Maker<'_>, content: &RawValue) -> Result<RawJson, BadJson> {
    let own = ProviderBlocks { dialect: maker.dialect, model: maker.model, content };
    RawJson::parse(&serde_json::to_string(&own).map_err(|error| BadJson::Malformed(error.to_string()))?)
}

impl Conversation {
    /// What a provider is sent.
    pub(super) fn new(prompt: &Prompt, maker: Maker<'_>) -> Conversation {
        let names = Names::of(prompt.definition.tools.keys());
        let tools = prompt.definition.tools.iter();
        let tools = tools.map(|(name, spec)| Offer {
            name: names.there(name.as_str()),
            description: spec.description.clone(),
            schema: spec.schema.clone(),
        });
        let mut ids = Ids::default();
        let mut turns = Vec::new();
        for entry in &prompt.transcript {
            match entry {
                Entry::User(said) => turns.push(Turn::User(pieces(&said.message))),
                Entry::Assistant(reply) => {
                    turns.push(Turn::Assistant(assistant(reply, &mut ids, &names, maker)));
                }
                Entry::Tool(result) => {
                    let answer = answer(result, &ids, &names);
                    match turns.last_mut() {
                        Some(Turn::Results(results)) => results.push(answer),
                        Some(Turn::User(_) | Turn::Assistant(_)) | None => {
                            turns.push(Turn::Results(vec![answer]));
                        }
                    }
                }
            }
        }
        Conversation { system: prompt.definition.prompt.clone(), turns, tools: tools.collect(), names }
    }
}

/// Ids of calls: the provider's own where they can be told apart, ours where not.
#[derive(Debug, Default)]
struct Ids {
    taken: BTreeSet<String>,
    by_call: BTreeMap<CallNo, String>,
}

impl Ids {
    /// The id of a call, and whether it is the provider's own.
    fn give(&mut self, no: CallNo, own: &str) -> (String, bool) {
        let is_own = !own.is_empty() && !self.taken.contains(own);
        let mut id = if is_own { own.to_owned() } else { format!("call_{}", no.0) };
        while self.taken.contains(&id) {
            id.push('_');
        }
        self.taken.insert(id.clone());
        self.by_call.insert(no, id.clone());
        (id, is_own)
    }
}

fn assistant(reply: &AssistantReply, ids: &mut Ids, names: &Names, maker: Maker<'_>) -> Assistant {
    let mut keeps_ids = true;
    let calls = reply.calls.iter().map(|call| {
        let (id, is_own) = ids.give(call.no, &call.id);
        keeps_ids &= is_own || call.id.is_empty();
        PastCall { id, name: names.there(call.tool.as_str()), arguments: filled(&call.arguments) }
    });
    let calls = calls.collect();
    let own = reply.opaque.as_ref().filter(|_| keeps_ids).and_then(|opaque| {
        let own: ProviderBlocks<'_> = serde_json::from_str(opaque.inline()?).ok()?;
        let is_theirs = Maker { dialect: own.dialect, model: own.model } == maker;
        is_theirs.then(|| own.content.to_owned())
    });
    Assistant { text: reply.text.as_ref().map(filled).filter(|text| !text.is_empty()), calls, own }
}

fn answer(result: &CallResult, ids: &Ids, names: &Names) -> ToolAnswer {
    ToolAnswer {
        id: ids.by_call.get(&result.call).cloned().unwrap_or_else(|| result.id.clone()),
        name: names.there(result.tool.as_str()),
        text: result.told().unwrap_or_else(|| LEFT_OUT.to_owned()),
        is_error: result.kind != ResultKind::Ok,
    }
}

/// What stands for a value that is not at hand.
const LEFT_OUT: &str = "(a large value, left out)";

fn filled(body: &Body) -> String {
    body.inline().unwrap_or(LEFT_OUT).to_owned()
}

fn pieces(message: &Message) -> Vec<Piece> {
    let pieces = message.parts.iter().map(|part| match part {
        Part::Text(body) | Part::Data(body) => Piece::Text(filled(body)),
        Part::File { name, media_type, content } => file(name.as_deref(), media_type.as_deref(), content),
    });
    let pieces: Vec<Piece> = pieces.filter(|piece| *piece != Piece::Text(String::new())).collect();
    // No provider takes a message without content.
    if pieces.is_empty() { vec![Piece::Text("(an empty message)".into())] } else { pieces }
}

/// Pictures are shown to the model, of other files it gets the name.
fn file(name: Option<&str>, media_type: Option<&str>, content: &Body) -> Piece {
    let content = content.inline().unwrap_or_default();
    let is_address = content.starts_with("https://") || content.starts_with("http://");
    match media_type.filter(|media_type| media_type.starts_with("image/")) {
        Some(_) if is_address => Piece::ImageAt(content.to_owned()),
        Some(media_type) if !content.is_empty() => {
            Piece::Image { media_type: media_type.to_owned(), base64: content.to_owned() }
        }
        Some(_) | None => {
            let at = if is_address { format!(" at {content}") } else { String::new() };
            let (name, kind) = (name.unwrap_or("without a name"), media_type.unwrap_or("of unknown type"));
            Piece::Text(format!("(a file: {name}, {kind}{at})"))
        }
    }
}

/// How tools are called there: providers take letters, digits, `_` and `-`, and not too many of them.
#[derive(Debug, Default)]
pub(super) struct Names {
    there: BTreeMap<String, String>,
    here: BTreeMap<String, String>,
}

impl Names {
    pub(super) fn of<'a>(tools: impl Iterator<Item = &'a ToolName>) -> Names {
        let mut names = Names::default();
        for tool in tools {
            let mut name = plain(tool.as_str());
            let mut no = 2;
            while names.here.contains_key(&name) {
                let ending = format!("_{no}");
                name.truncate(NAME_MAX - ending.len());
                name.push_str(&ending);
                no += 1;
            }
            names.here.insert(name.clone(), tool.as_str().to_owned());
            names.there.insert(tool.as_str().to_owned(), name);
        }
        names
    }

    /// The name of a tool there; also of one that there is not any more.
    pub(super) fn there(&self, here: &str) -> String {
        self.there.get(here).cloned().unwrap_or_else(|| plain(here))
    }

    /// The name of a tool here; what is not a tool's name stays as it is.
    pub(super) fn here(&self, there: &str) -> String {
        self.here.get(there).cloned().unwrap_or_else(|| there.to_owned())
    }

    /// A call as the model wrote it. Arguments of which nothing was written are none.
    pub(super) fn call(&self, id: String, name: &str, arguments: String) -> AskedCall {
        let arguments = if arguments.trim().is_empty() { "{}".to_owned() } else { arguments };
        AskedCall { id, tool: self.here(name), arguments, problem: None }
    }
}

fn plain(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
    let name: String = name.chars().map(plain).take(NAME_MAX).collect();
    if name.is_empty() { "_".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_look_alike_there_stay_apart() {
        let tools =
            ["a.b", "a_b", "plain", &"x".repeat(80), &"x".repeat(90)].map(|n| ToolName::new(n).unwrap());
        let names = Names::of(tools.iter());
        let there: BTreeSet<String> = tools.iter().map(|tool| names.there(tool.as_str())).collect();
        assert_eq!(there.len(), tools.len());
        for tool in &tools {
            let there = names.there(tool.as_str());
            assert!(there.len() <= NAME_MAX && there.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'));
            assert_eq!(names.here(&there), tool.as_str());
        }
        assert_eq!((names.here("unknown"), names.there("gone.tool")), ("unknown".into(), "gone_tool".into()));
    }

    /// F26: ids that repeat, and ids that are missing.
    #[test]
    fn every_call_has_an_id_of_its_own() {
        let mut ids = Ids::default();
        let given: Vec<(String, bool)> =
            ["a", "a", "", "call_5", ""].iter().zip(1..).map(|(own, no)| ids.give(CallNo(no), own)).collect();
        let expected =
            [("a", true), ("call_2", false), ("call_3", false), ("call_5", true), ("call_5_", false)];
        assert_eq!(given, expected.map(|(id, own)| (id.to_owned(), own)));
    }
}
