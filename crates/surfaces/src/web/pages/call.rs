//! The call of a hold, as people read it: by what its tool would do, or as a tree; the raw bytes are always beside it.
//!
//! Nothing here is compared or decided. What is too long is cut with a word about how much is missing.

use serde::Serialize;
use standfast_core::hold::HoldKind;
use standfast_core::json::RawJson;
use standfast_core::name::UserId;
use standfast_core::project::ResolutionKind;
use standfast_core::time::Timestamp;
use standfast_engine::HoldView;
use standfast_engine::tool::preview::{CallPreview, FileChange, FileNow, Risk};

use super::ShownInstant;
use crate::labels;
use crate::web::diff::{self, Diff};
use crate::web::json_view;
use crate::web::media::{self, FileAccess, FilesFound};

/// Bytes of arguments from which on a summary comes first.
const BIG: usize = 4_000;
/// Bytes of arguments that stand on the page as they are; longer ones are a page of their own.
const RAW_MAX: usize = 64 * 1024;
/// Bytes of arguments that can be edited on a page.
pub(in crate::web) const EDIT_MAX: usize = 64 * 1024;
/// Lines of a diff.
const DIFF_MAX: usize = 2_000;
/// Characters of a body of a request.
const BODY_MAX: usize = 20_000;

/// The arguments of a call.
#[derive(Debug, Serialize)]
pub(in crate::web) struct CallShown {
    /// `diff`, `command`, `request` or `tree`.
    kind: &'static str,
    diff: Option<DiffShown>,
    command: Option<CommandShown>,
    request: Option<RequestShown>,
    /// Markup of a tree, escaped.
    tree: Option<String>,
    /// What there is of what, of a large one.
    summary: Vec<(String, String)>,
    bytes: usize,
    is_big: bool,
    /// The bytes, where they are few.
    raw: Option<String>,
    label: &'static str,
    raw_label: &'static str,
    media: FilesFound,
    /// How many hidden characters it shows of files: those of the arguments are others, where files are base64.
    pub(in crate::web) hidden_in_files: usize,
}

#[derive(Debug, Serialize)]
struct DiffShown {
    path: String,
    /// `new file`, `changed` or `unchanged`.
    what: &'static str,
    diff: Option<Diff>,
    /// What would be written, where nothing can be compared with it or nothing differs.
    text: Option<String>,
    /// Characters of it that are not shown.
    text_left_out: usize,
    /// Why the call would fail, or cannot be shown.
    trouble: Option<String>,
    /// The file is not what it was when the question was asked.
    is_changed_since: bool,
    /// When it was written last, where that was after the question.
    changed_at: Option<ShownInstant>,
}

#[derive(Debug, Serialize)]
struct CommandShown {
    argv: Vec<String>,
    directory: String,
    allowed: Vec<String>,
    denied: Vec<String>,
    trouble: Option<String>,
}

#[derive(Debug, Serialize)]
struct RequestShown {
    method: String,
    url: String,
    headers: Vec<(String, String)>,
    body: Option<String>,
    body_tree: Option<String>,
    /// Characters of the body that are not shown.
    left_out: usize,
}

/// What is known of the risk, in a word for the style and in words for people. Where nothing is known, nothing is said.
#[derive(Debug, Serialize)]
pub(in crate::web) struct RiskShown {
    pub(in crate::web) word: &'static str,
    pub(in crate::web) text: &'static str,
}

pub(in crate::web) fn risk(risk: Option<Risk>) -> Option<RiskShown> {
    risk.map(|risk| match risk {
        Risk::ReadOnly => RiskShown { word: "read_only", text: labels::risk(risk) },
        Risk::Reversible => RiskShown { word: "reversible", text: labels::risk(risk) },
        Risk::Destructive => RiskShown { word: "destructive", text: labels::risk(risk) },
    })
}

/// What a hold waits for; a sub-run is none of the kinds that people decide.
pub(in crate::web) fn kind(view: &HoldView) -> &'static str {
    if view.ask.child.is_some() { "Sub-run" } else { labels::kind(view.row.kind) }
}

/// Whether somebody has approved an open hold that others must approve too.
pub(in crate::web) fn has_agreed(view: &HoldView, who: &UserId) -> bool {
    view.open.as_ref().is_some_and(|open| open.votes.contains(who))
}

/// Why no single key approves a call: what it does cannot be undone, nobody knows whether it can, or what is shown has so many
/// hidden characters.
pub(in crate::web) fn care(risk: Option<Risk>, hidden: usize) -> Option<&'static str> {
    match risk {
        Some(Risk::ReadOnly | Risk::Reversible) => (hidden > 0).then_some("hidden"),
        Some(Risk::Destructive) => Some("destructive"),
        None => Some("unknown"),
    }
}

/// What the arguments are called, and their bytes, by what became of the call.
fn labels_of(view: &HoldView) -> (&'static str, &'static str) {
    let has_started = match view.row.kind {
        HoldKind::External | HoldKind::Recovery => true,
        HoldKind::Approval | HoldKind::Input | HoldKind::Auth => view.ask.child.is_some(),
    };
    match &view.row.closed {
        Some(closed) if closed.how == ResolutionKind::Edited => (
            "Arguments the agent asked for; others were approved",
            "Raw arguments the agent asked for; others were approved",
        ),
        Some(_) => ("Arguments as they were last shown", "Raw arguments as they were last shown"),
        None if has_started => {
            ("Arguments", "Raw arguments, byte for byte as the call was started with them")
        }
        None => ("Arguments", "Raw arguments, byte for byte as they will run"),
    }
}

pub(in crate::web) fn shown(
    view: &HoldView,
    preview: Option<CallPreview>,
    access: FileAccess,
    now: Timestamp,
) -> Option<CallShown> {
    let arguments = view.arguments.as_ref()?;
    let text = arguments.text();
    let is_big = text.len() > BIG;
    let (label, raw_label) = labels_of(view);
    let files = format!("/approve/{}/media", view.row.id);
    let media = media::find(text, &files);
    let mut call = CallShown {
        kind: "tree",
        diff: None,
        command: None,
        request: None,
        tree: None,
        summary: if is_big { json_view::summary(arguments) } else { Vec::new() },
        bytes: text.len(),
        is_big,
        raw: (text.len() <= RAW_MAX).then(|| text.to_owned()),
        label,
        raw_label,
        hidden_in_files: match access {
            FileAccess::Open => media.hidden(),
            FileAccess::AfterSignIn => 0,
        },
        media,
    };
    match preview {
        Some(CallPreview::FileChange(change)) => {
            call.kind = "diff";
            call.diff = Some(diff_shown(change, view, now));
        }
        Some(CallPreview::Command(command)) => {
            call.kind = "command";
            call.command = Some(CommandShown {
                argv: command.argv,
                directory: command.directory,
                allowed: command.allowed,
                denied: command.denied,
                trouble: command.trouble,
            });
        }
        Some(CallPreview::Request(request)) => {
            call.kind = "request";
            let body = request.body.as_deref();
            let json = body.filter(|body| body.trim_start().starts_with(['{', '[']));
            let length = body.map_or(0, |body| body.chars().count());
            call.request = Some(RequestShown {
                method: request.method.clone(),
                url: request.url.clone(),
                headers: request.headers.clone(),
                body: body.map(|body| body.chars().take(BODY_MAX).collect()),
                body_tree: json.and_then(|json| RawJson::parse(json).ok()).map(|json| json_view::html(&json)),
                left_out: length.saturating_sub(BODY_MAX),
            });
        }
        None => {
            call.tree = Some(match access {
                FileAccess::Open => json_view::html_with_files(arguments, &files),
                FileAccess::AfterSignIn => json_view::html(arguments),
            });
        }
    }
    Some(call)
}

fn diff_shown(change: FileChange, view: &HoldView, now: Timestamp) -> DiffShown {
    let asked_at = view.row.opened_at;
    let written = match &change.before {
        FileNow::Text { modified_at, .. } if *modified_at > asked_at => Some(*modified_at),
        FileNow::Text { .. } | FileNow::Missing | FileNow::Unreadable(_) => None,
    };
    // What it had then is on record; of an older question, and of arguments that were changed since, only its times are.
    let asked = view.ask.target.as_ref().filter(|target| target.path == change.path);
    let is_changed_since = match (asked, change.digest()) {
        (Some(asked), Some(now)) => asked.sha256 != now.sha256,
        (Some(_), None) => true,
        (None, _) => written.is_some(),
    };
    let changed_at = written.filter(|_| is_changed_since).map(|at| ShownInstant::new(at, now));
    let FileChange { path, before, after } = change;
    let whole = after.as_ref().ok().cloned();
    let (what, diff, trouble) = match (&before, after) {
        (_, Err(why)) => ("changed", None, Some(why)),
        (FileNow::Missing, Ok(after)) => ("new file", Some(diff::unified("", &after, DIFF_MAX)), None),
        (FileNow::Text { text, .. }, Ok(after)) if *text == after => ("unchanged", None, None),
        (FileNow::Text { text, .. }, Ok(after)) => {
            ("changed", Some(diff::unified(text, &after, DIFF_MAX)), None)
        }
        (FileNow::Unreadable(why), Ok(_)) => ("changed", None, Some(why.clone())),
    };
    let whole = whole.filter(|_| diff.is_none());
    let text_left_out = whole.as_ref().map_or(0, |text| text.chars().count().saturating_sub(BODY_MAX));
    let text = whole.map(|text| text.chars().take(BODY_MAX).collect());
    DiffShown { path, what, diff, text, text_left_out, trouble, is_changed_since, changed_at }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// T17: what cannot be read at a glance is not approved by one key, however harmless its tool.
    #[test]
    fn one_key_approves_only_what_is_harmless_and_readable() {
        let cares = [
            (Some(Risk::ReadOnly), 0, None),
            (Some(Risk::Reversible), 0, None),
            (Some(Risk::ReadOnly), 1, Some("hidden")),
            (Some(Risk::Reversible), 3, Some("hidden")),
            (Some(Risk::Destructive), 1, Some("destructive")),
            (None, 0, Some("unknown")),
        ];
        for (risk, hidden, expected) in cares {
            assert_eq!(care(risk, hidden), expected, "{risk:?} {hidden}");
        }
    }
}
