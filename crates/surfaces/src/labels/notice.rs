//! What somebody is told who is asked, or a room of several: the same facts in every mail and every chat.
//!
//! Values, as they are stored; how they are escaped and laid out is for whoever writes the message. What is too long for it has neither
//! arguments nor question here, and so no button (T19).

use standfast_core::body::Body;
use standfast_core::event::{Envelope, Event};
use standfast_core::hold::{Delegation, Hold, HoldKind};
use standfast_core::run::Facts;
use standfast_core::time::Timestamp;
use standfast_engine::HoldView;

use crate::http::rfc3339;
use crate::labels::{self, reason};

/// What is told of one hold.
#[derive(Debug, Clone)]
pub(crate) struct HoldNotice {
    /// What is asked, in a line; of a decided one, how it was decided.
    pub(crate) title: String,
    /// What happened.
    pub(crate) news: String,
    /// Names and values.
    pub(crate) facts: Vec<(&'static str, String)>,
    /// Why it is held, as the page of the hold says it.
    pub(crate) reason: Option<String>,
    /// Who says so.
    pub(crate) reason_label: &'static str,
    /// The question.
    pub(crate) question: Option<String>,
    /// The tool.
    pub(crate) tool: Option<String>,
    /// The bytes that will run.
    pub(crate) arguments: Option<String>,
    /// Whether all of it is here.
    pub(crate) is_whole: bool,
    /// Whether it has its decision.
    pub(crate) is_decided: bool,
    /// The page where people sign in and decide.
    pub(crate) page: Option<String>,
}

/// Everything that is pending for somebody, each with its page.
#[derive(Debug, Clone)]
pub(crate) struct DigestNotice {
    pub(crate) title: String,
    pub(crate) news: String,
    /// What is asked, and where it is decided.
    pub(crate) holds: Vec<(String, String)>,
}

impl DigestNotice {
    /// Of these holds, and so many beyond them.
    pub(crate) fn of(public_url: Option<&str>, holds: &[HoldView], more: usize) -> DigestNotice {
        let count = holds.len().saturating_add(more);
        let line_of = |view: &HoldView| {
            let until = view.row.expires_at.map(|at| format!(", until {}", instant(at))).unwrap_or_default();
            let text = format!("{} ({}{until})", title(view), view.row.agent);
            (text, page(public_url, view).unwrap_or_default())
        };
        DigestNotice {
            title: if count == 1 {
                "1 decision is pending".into()
            } else {
                format!("{count} decisions are pending")
            },
            news: if more > 0 {
                format!("The oldest {} are below. Sign in to see all.", holds.len())
            } else {
                "Sign in to see what is asked and to decide.".into()
            },
            holds: holds.iter().map(line_of).collect(),
        }
    }
}

/// Whether all that is decided fits into so many bytes.
pub(crate) fn is_whole(view: &HoldView, bytes: usize) -> bool {
    let inline = |body: &Option<Body>| body.as_ref().is_none_or(|body| body.inline().is_some());
    let length = |body: &Option<Body>| body.as_ref().and_then(Body::inline).map_or(0, str::len);
    let arguments = view.arguments.as_ref().map_or(0, |arguments| arguments.text().len());
    let options: usize = view.ask.options.iter().map(String::len).sum();
    inline(&view.ask.question)
        && inline(&view.ask.data)
        && arguments + length(&view.ask.question) + length(&view.ask.data) + options <= bytes
}

impl HoldNotice {
    /// What an event tells of a hold, in so many bytes at most.
    pub(crate) fn of(
        public_url: Option<&str>,
        run: &Facts,
        event: &Envelope,
        view: &HoldView,
        bytes: usize,
    ) -> HoldNotice {
        let (row, ask) = (&view.row, &view.ask);
        let inline = |body: &Option<Body>| body.as_ref().and_then(Body::inline).map(str::to_owned);
        let (whole, is_asked) = (is_whole(view, bytes), row.kind == HoldKind::Input);
        let decided = row.closed.as_ref().map(|closed| {
            let how = labels::decision(Some(row.kind), closed.how);
            let late = if view.late { " (late)" } else { "" };
            format!("{how} by {} at {}{late}.", labels::actor(&closed.by), instant(closed.at))
        });
        let mut facts = vec![
            ("Agent", row.agent.to_string()),
            ("Started by", run.owner.to_string()),
            ("Opened", instant(row.opened_at)),
        ];
        let expired = row.expired_at.map(|at| ("Expired", format!("{}, {}", instant(at), late_until(view))));
        let deadline = expired.or_else(|| Some(("Deadline", instant(row.expires_at?))));
        facts.extend(deadline.filter(|_| decided.is_none()));
        if let Some(risk) = view.risk {
            facts.push(("Risk", labels::risk(risk).to_owned()));
        }
        let arguments = view.arguments.as_ref().filter(|_| !is_asked && whole);
        HoldNotice {
            title: match &row.closed {
                Some(closed) => {
                    format!("{}: {}", labels::decision(Some(row.kind), closed.how), title(view))
                }
                None => title(view),
            },
            news: decided.clone().unwrap_or_else(|| asking(event, view)),
            facts,
            reason: reason::why(view).filter(|_| decided.is_none()),
            reason_label: reason::label(view),
            question: inline(&ask.question).filter(|_| whole),
            tool: row.tool.as_ref().filter(|_| !is_asked).map(ToString::to_string),
            arguments: arguments.map(|arguments| arguments.text().to_owned()),
            is_whole: whole,
            is_decided: decided.is_some(),
            page: page(public_url, view),
        }
    }
}

/// The page of a hold.
pub(crate) fn page(public_url: Option<&str>, view: &HoldView) -> Option<String> {
    public_url.map(|url| format!("{}/approve/{}", url.trim_end_matches('/'), view.row.id))
}

/// What an event is, before its title.
pub(crate) fn prefix(event: &Envelope) -> &'static str {
    match &event.event {
        Event::HoldReminded(_) => "Reminder: ",
        Event::HoldEscalated(_) => "Escalated to you: ",
        Event::HoldDelegated(_) => "Handed on to you: ",
        Event::HoldEdited(edited) if edited.asked_again => "Asked again: ",
        Event::HoldEdited(_) => "Changed: ",
        Event::HoldExpired(_) => "Expired: ",
        _ => "",
    }
}

fn asking(event: &Envelope, view: &HoldView) -> String {
    let news = match &event.event {
        Event::HoldReminded(_) => "This is still pending.",
        Event::HoldEscalated(_) => "Nobody has decided this in time, so you are asked as well.",
        Event::HoldDelegated(handed) => {
            let Delegation { by, to, until, .. } = &handed.delegation;
            return format!("{by} lets {to} decide this in their place until {}.", instant(*until));
        }
        Event::HoldEdited(edited) if edited.asked_again => {
            "It is asked again, because something is different now. Links of earlier mails are for what was asked before."
        }
        Event::HoldEdited(_) => {
            "The arguments were changed. Links of earlier mails are for what was asked before."
        }
        Event::HoldExpired(_) => return format!("It has expired, and {}.", late_until(view)),
        _ => "Your decision is needed.",
    };
    news.to_owned()
}

/// What a decision about an expired hold is worth, and until when.
fn late_until(view: &HoldView) -> String {
    let until = view.open.as_ref().and_then(Hold::grace_ends_at);
    let until = until.map_or_else(String::new, |until| format!(" until {}", instant(until)));
    format!("a late decision still counts{until}")
}

/// What is asked, in a line.
pub(crate) fn title(view: &HoldView) -> String {
    let tool = view.row.tool.as_ref().map_or_else(|| "the run".to_owned(), ToString::to_string);
    match view.row.kind {
        HoldKind::Approval => format!("Approve {tool}?"),
        HoldKind::Input if view.is_asked_by_server => format!("A run of {} cannot go on", view.row.agent),
        HoldKind::Input => format!("{} asks for input", view.row.agent),
        HoldKind::External => format!("Waiting for the result of {tool}"),
        HoldKind::Auth => format!("{tool} needs a login"),
        HoldKind::Recovery => format!("Did {tool} take effect?"),
    }
}

/// An instant as people read it.
pub(crate) fn instant(at: Timestamp) -> String {
    let iso = rfc3339(at);
    format!("{} {} UTC", &iso[..10], &iso[11..19])
}
