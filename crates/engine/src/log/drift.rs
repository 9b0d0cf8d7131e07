//! What is different now from when a question was asked: definition, tool, policy, files.
//!
//! Shown to whoever decides; it changes nothing. Approving goes on with what was shown, and what matters is looked at again
//! directly before the call starts: a tool or a file that changed, or a new rule, asks again by itself.

use std::collections::BTreeSet;

use standfast_core::definition::{Definition, ToolSpec};
use standfast_core::digest::{self, Digest};
use standfast_core::event::{Envelope, Event};
use standfast_core::hold::HoldKind;
use standfast_core::json::RawJson;
use standfast_core::message::FileDigest;
use standfast_core::project::HoldRow;
use standfast_core::run::Run;

use crate::settings::Agent;

/// Something that is different now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drift {
    /// What.
    pub what: DriftKind,
    /// In words, with what follows from it.
    pub text: String,
}

/// What can be different.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriftKind {
    /// The agent.
    Definition,
    /// The tool: its description or schema.
    Tool,
    /// The rules.
    Policy,
    /// A file that the call names.
    File,
}

impl DriftKind {
    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            DriftKind::Definition => "definition",
            DriftKind::Tool => "tool",
            DriftKind::Policy => "policy",
            DriftKind::File => "file",
        }
    }
}

/// What is different of an open approval since it was asked. Of an agent that is gone, that is all there is to say.
pub(crate) fn drift(
    agent: Option<&Agent>,
    (run, definition): (&Run, &Definition),
    (row, arguments): (&HoldRow, Option<&RawJson>),
    events: &[Envelope],
) -> Vec<Drift> {
    let mut found = Vec::new();
    let mut says = |what: DriftKind, text: &str| found.push(Drift { what, text: text.to_owned() });
    if row.closed.is_some() || row.kind != HoldKind::Approval {
        return found;
    }
    let Some(agent) = agent else {
        // Whoever drives such a run needs no agent of this server.
        if run.facts.driver.is_elsewhere() {
            return found;
        }
        says(
            DriftKind::Definition,
            "The agent is no longer configured: approved or not, the call cannot start.",
        );
        return found;
    };
    // Each gate is pinned to a definition of its own, with the tool that its caller named.
    let is_gate = agent.any_tool.is_some();
    if !is_gate && !agent.pins(run.state.definition) {
        says(
            DriftKind::Definition,
            "The agent has changed since this run began. The run goes on with the agent as it was.",
        );
    }
    if let Some(tool) = &row.tool {
        let shown = definition.tools.get(tool).map(ToolSpec::schema_digest);
        match agent.definition.tools.get(tool).map(ToolSpec::schema_digest) {
            // A gate's tool is its caller's, and what a worker brings was never the agent's.
            None if is_gate || shown.is_none() => {}
            None => says(DriftKind::Tool, "The agent no longer has this tool."),
            now if now != shown => says(
                DriftKind::Tool,
                "The tool is described otherwise now. The call is made as it was shown.",
            ),
            Some(_) => {}
        }
        let named = arguments.and_then(|arguments| Some(agent.tools.get(tool)?.files(arguments.text())));
        let shown = run.call(row.id.key.call).map(|call| call.files);
        if let (Some(named), Some(shown)) = (named, shown)
            && digest::of_files(&named) != shown
        {
            for changed in changed_files(shown_files(row, events), &named) {
                says(
                    DriftKind::File,
                    &format!("{changed} If it is approved as it is, it is asked about again."),
                );
            }
        }
    }
    if judged_by(row, events) != agent.rules.digest() {
        says(
            DriftKind::Policy,
            "The policy has changed. It is asked again directly before the call starts; a rule that is new may hold or deny it.",
        );
    }
    found
}

/// Each file that is different from what was shown, with what it was and what it is.
fn changed_files(shown: &[FileDigest], named: &[FileDigest]) -> Vec<String> {
    let digest = |files: &[FileDigest], path: &str| {
        files.iter().find(|file| file.path == path).map(|file| file.sha256.clone())
    };
    let paths: BTreeSet<&str> = shown.iter().chain(named).map(|file| file.path.as_str()).collect();
    let text = |path: &str| match (digest(shown, path), digest(named, path)) {
        (then, now) if then == now => None,
        (Some(then), Some(now)) => {
            Some(format!("The file {path} has changed: it had sha256 {then}, and has {now} now."))
        }
        (Some(then), None) => Some(format!("The file {path} is no longer there: it had sha256 {then}.")),
        (None, now) => {
            let now = now.map_or_else(String::new, |now| format!(", with sha256 {now}"));
            Some(format!("The file {path} was not there, and is now{now}."))
        }
    };
    paths.into_iter().filter_map(text).collect()
}

/// The files that a hold was last shown with: those of its call, until it is edited or asked about again.
fn shown_files<'a>(row: &HoldRow, events: &'a [Envelope]) -> &'a [FileDigest] {
    let (hold, no) = (row.id.key, row.id.key.call);
    let shown = events.iter().rev().find_map(|envelope| match &envelope.event {
        Event::HoldEdited(edited) if edited.hold == hold => Some(&edited.edited.files),
        Event::HoldOpened(opened) if opened.hold == hold && opened.digest.is_some() => Some(&opened.files),
        Event::ModelReplied(replied) => {
            replied.reply.calls.iter().find(|call| call.no == no).map(|call| &call.files)
        }
        Event::CallProposed(proposed) if proposed.call.no == no => Some(&proposed.call.files),
        _ => None,
    });
    shown.map(Vec::as_slice).unwrap_or_default()
}

/// The policy that a hold was last judged by.
fn judged_by(row: &HoldRow, events: &[Envelope]) -> Option<Digest> {
    let judged = events.iter().rev().find_map(|envelope| match &envelope.event {
        Event::HoldEdited(edited) if edited.hold == row.id.key => Some(Some(&edited.judged)),
        Event::HoldOpened(opened) if opened.hold == row.id.key => Some(opened.judged.as_ref()),
        _ => None,
    });
    judged.flatten().and_then(|judged| judged.policy)
}
