//! What a click in a chat decides: one function for every chat, which asks the engine as every page does (T5, T12, T13).
//!
//! A click comes here once its chat was found genuine. Who clicked is the account that its chat names, as its holder linked it; what they
//! may do is the engine's to say. What does not count is answered by a sentence, for the eyes of whoever clicked, and is in the audit.

use standfast_core::command::Choice;
use standfast_core::digest;
use standfast_core::hold::HoldKind;
use standfast_core::id::HoldId;
use standfast_engine::auth::Principal;
use standfast_engine::settings::{Channel, DecideInChat};
use standfast_engine::{ChatAccount, ClickResult, Decision, EngineError, HoldView, IdempotencyKey};

use crate::http::App;
use crate::labels;
use crate::labels::hidden_characters::visible;
use crate::labels::notice;

/// Letters of the digest of a call that a button carries where it has no room for all of them: 100 bits.
pub(super) const DIGEST_LETTERS: usize = 20;

/// A click that its chat signed.
pub(super) struct Click {
    pub(super) account: ChatAccount,
    /// What the chat calls them: for the page where they say who they are, and for nothing else.
    pub(super) shown: String,
    /// What the button says; none when it says nothing that could be decided.
    pub(super) button: Option<Button>,
    /// Names this click.
    pub(super) once: String,
}

/// What a button is bound to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Button {
    pub(super) approves: bool,
    pub(super) hold: HoldId,
    pub(super) revision: u32,
    /// The first letters of the digest of the call that was shown.
    pub(super) digest: String,
}

impl Button {
    /// The button for a hold as it is now.
    pub(super) fn of(view: &HoldView, approves: bool) -> Button {
        let digest = view.row.digest.map(|digest| digest.to_string()).unwrap_or_default();
        let digest = digest.get(..DIGEST_LETTERS).unwrap_or_default().to_owned();
        Button { approves, hold: view.row.id, revision: view.row.revision, digest }
    }

    /// What it carries: at most 100 characters.
    pub(super) fn text(&self) -> String {
        let word = if self.approves { 'a' } else { 'd' };
        format!("{word}:{}:{}:{}", self.hold, self.revision, self.digest)
    }

    /// What a button carried.
    pub(super) fn read(text: &str) -> Option<Button> {
        let mut parts = text.split(':');
        let approves = match parts.next()? {
            "a" => true,
            "d" => false,
            _ => return None,
        };
        let (hold, revision) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let digest = parts.next()?.to_owned();
        let is_whole = digest.len() == DIGEST_LETTERS && parts.next().is_none();
        is_whole.then_some(Button { approves, hold, revision, digest })
    }
}

/// Whether a message about a hold, with so much room, has buttons that decide it.
pub(super) fn has_buttons(view: &HoldView, decide: DecideInChat, bytes: usize) -> bool {
    view.row.closed.is_none()
        && view.row.kind == HoldKind::Approval
        && view.row.digest.is_some()
        && view.ask.child.is_none()
        && is_whole(view, bytes)
        && decide.takes(view.risk_class())
}

/// Whether all that is decided has room in a message, as it is shown there.
pub(super) fn is_whole(view: &HoldView, bytes: usize) -> bool {
    let shown = view.arguments.as_ref().map_or(0, |arguments| visible(arguments.text()).len());
    notice::is_whole(view, bytes) && shown <= bytes
}

/// Decides; none when it counted, otherwise what is told to whoever clicked.
pub(super) async fn decide(
    app: &App,
    channel: &Channel,
    (interactive, bytes): (DecideInChat, usize),
    click: Click,
) -> Option<String> {
    let hold = click.button.as_ref().map(|button| button.hold);
    let refused = match by_click(app, channel, (interactive, bytes), &click).await {
        Ok(who) => {
            let result = ClickResult::Decided(&who.user);
            return match app
                .engine
                .callbacks()
                .chat_accounts()
                .record_click(channel, &click.account, hold, result)
                .await
            {
                Ok(()) => None,
                Err(error) => {
                    tracing::error!(%error, account = %click.account, "chats: a decision by a click is not in the audit");
                    None
                }
            };
        }
        Err(refused) => refused,
    };
    tracing::warn!(account = %click.account, channel = channel.name, why = refused.why, "chats: a click was refused");
    let result = ClickResult::Refused(refused.why);
    if let Err(error) =
        app.engine.callbacks().chat_accounts().record_click(channel, &click.account, hold, result).await
    {
        tracing::error!(%error, account = %click.account, "chats: a refused click is not in the audit");
    }
    Some(refused.sentence)
}

/// A click that did not count.
struct RefusedClick {
    /// For operators.
    why: &'static str,
    /// For whoever clicked.
    sentence: String,
}

fn no(why: &'static str, sentence: impl Into<String>) -> RefusedClick {
    RefusedClick { why, sentence: sentence.into() }
}

async fn by_click(
    app: &App,
    channel: &Channel,
    (interactive, bytes): (DecideInChat, usize),
    click: &Click,
) -> Result<Principal, RefusedClick> {
    let away = |error: EngineError| {
        tracing::error!(%error, "chats: a click could not be looked at");
        no("unavailable", "This cannot be decided right now. Nothing was decided; try again.")
    };
    let found = app.engine.callbacks().chat_accounts().person(channel, &click.account).await;
    let Some(who) = found.map_err(|error| away(error.into()))? else {
        return Err(no("not linked", unlinked(app, channel, click)));
    };
    let Some(button) = &click.button else {
        return Err(no("unreadable", "This button says nothing that could be decided here."));
    };
    let snapshot = match app.engine.reads().snapshot(&who, button.hold.run).await {
        Ok(snapshot) => snapshot,
        Err(EngineError::NotFound) => {
            return Err(no("not asked", format!("You are not asked about this ({}).", who.user)));
        }
        Err(error) => return Err(away(error)),
    };
    let view = match app.engine.reads().hold_view(&who, &snapshot, button.hold).await {
        Ok(view) => view,
        Err(EngineError::NotFound) => return Err(no("no such hold", "This is not there any more.")),
        Err(error) => return Err(away(error)),
    };
    if let Some(closed) = &view.row.closed {
        let how = labels::decision(Some(view.row.kind), closed.how);
        let by = labels::actor(&closed.by);
        return Err(no("late", format!("This already has its decision: {how} by {by}.")));
    }
    if Button::of(&view, button.approves) != *button {
        let text = "What is asked has changed since this message. Decide what the newer one shows.";
        return Err(no("another version", text));
    }
    if !view.may_decide {
        let why = view.why_not.map(|why| why.to_string()).unwrap_or_default();
        let deciders = &view.deciders;
        return Err(no("not an approver", format!("You may not decide this: {why}. Who may: {deciders}.")));
    }
    if !has_buttons(&view, interactive, bytes) {
        let page = notice::page(app.engine.settings().public_url.as_deref(), &view).unwrap_or_default();
        return Err(no("not here", format!("This is not decided in a chat. Sign in and decide it: {page}")));
    }
    let request = digest::of_bytes(format!("{}|{}", click.once, button.text()).as_bytes());
    let once = IdempotencyKey::new(format!("/chat/{}", button.hold), click.once.clone(), request);
    let decision = Decision {
        hold: button.hold,
        wanted: if button.approves { Choice::Approve } else { Choice::Deny { reason: None } },
        digest: view.row.digest,
        revision: Some(button.revision),
        once: Some(once),
    };
    match app.engine.submit().decide_on(&who, decision.into(), &snapshot).await {
        Ok(_) => Ok(who),
        Err(EngineError::Store(error)) => Err(away(error.into())),
        Err(error) => Err(no("refused", format!("Nothing was decided: {error}."))),
    }
}

/// What somebody is told whose account is nobody's yet.
fn unlinked(app: &App, channel: &Channel, click: &Click) -> String {
    let settings = app.engine.settings();
    let token = app.engine.callbacks().chat_accounts().offer(channel, &click.account, &click.shown);
    match settings.public_url.as_deref().zip(token) {
        Some((url, token)) => format!(
            "Nothing was decided: this account is not linked to anybody here. If you are asked to decide, sign in and link it \
             within 15 minutes, then click again: {}/chat/account/{token}",
            url.trim_end_matches('/')
        ),
        None => "Nothing was decided: this account is not linked to anybody here.".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use standfast_core::id::{CallNo, HoldKey, RunId, Secret, StorageKind};
    use standfast_core::name::Tenant;
    use standfast_core::time::Timestamp;

    use super::*;

    /// T2, T8: a button names its hold, the version of it and what of it is decided, and nothing else is one.
    #[test]
    fn t8_a_button_is_bound_to_what_was_shown() {
        let run = RunId::new(&Tenant::default_tenant(), StorageKind::Memory, Timestamp(1), [1; 5]);
        let hold = HoldId { run, key: HoldKey { call: CallNo(u32::MAX), secret: Secret([255; 16]) } };
        let digest = "abcdefghijklmnopqrst".to_owned();
        let button = Button { approves: true, hold, revision: u32::MAX, digest };
        let text = button.text();
        assert!(text.len() <= 100, "{} characters: {text}", text.len());
        assert_eq!(Button::read(&text), Some(button.clone()));
        for odd in [
            "",
            "a",
            &text[1..],
            &text[..text.len() - 1],
            &format!("{text}:"),
            &format!("{text}x"),
            &text.replacen('a', "x", 1),
            &text.replace("4294967295", "-1"),
            &text.replace("4294967295", "4294967296"),
        ] {
            assert_eq!(Button::read(odd), None, "{odd}");
        }
    }
}
