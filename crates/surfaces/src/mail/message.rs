//! What a mail says: of one hold, to one person, as text and as HTML, with everything of others escaped (T17, T19, T20).
//!
//! Headers are made of one line without control characters each. The ids are made of hold, event and person, so that a mail that
//! is sent again is the same mail, and those about one hold are one conversation.

use std::sync::LazyLock;
use std::time::{Duration, UNIX_EPOCH};

use lettre::Message;
use lettre::message::header::{HeaderName, HeaderValue};
use lettre::message::{Mailbox, MultiPart};
use serde::Serialize;
use standfast_core::base32;
use standfast_core::digest::{self, Digest};
use standfast_core::event::{Envelope, Event};
use standfast_core::run::Facts;
use standfast_engine::{Delivery, DeliveryPayload, HoldView};

use super::MailTarget;
use crate::html::Templates;
use crate::labels::hidden_characters::visible;
use crate::labels::notice::{self, DigestNotice, HoldNotice};

/// Bytes of arguments and question that are shown; of more there is neither a part nor a link that decides.
const WHOLE: usize = 8 * 1024;

/// Characters of a subject.
const SUBJECT: usize = 120;

static MAILS: LazyLock<Templates> =
    LazyLock::new(|| Templates::new(&[("mail.html", include_str!("templates/mail.html"))]));

/// A mail as it is shown.
#[derive(Debug, Serialize)]
struct MailPage {
    title: String,
    /// What happened.
    news: String,
    facts: Vec<(&'static str, String)>,
    reason: Option<String>,
    reason_label: &'static str,
    question: Option<String>,
    /// The tool and the bytes that will run.
    tool: Option<String>,
    arguments: Option<String>,
    is_cut: bool,
    /// What is pending, of a digest: each with its page.
    holds: Vec<(String, String)>,
    link: Option<String>,
    page: Option<String>,
    person: String,
}

/// Whether a mail shows all that is decided.
pub(super) fn is_whole(view: &HoldView) -> bool {
    notice::is_whole(view, WHOLE)
}

/// The mail that tells this; none when there is nothing to tell to this person.
pub(super) fn compose(telling: &Delivery<'_>, target: &MailTarget<'_>) -> Option<Result<Message, String>> {
    match &telling.what {
        DeliveryPayload::Frame { .. } => None,
        DeliveryPayload::Digest { id, holds, more } => Some(digest_mail(telling, target, id, holds, *more)),
        DeliveryPayload::Ping { id } => Some(test(telling, target, id)),
        DeliveryPayload::Event { run, event, hold } => {
            let view = hold.as_ref()?;
            is_told(event, view).then(|| of_event(telling, target, run, event, view))
        }
    }
}

/// Those who are asked are notified as long as there is something to decide, and of the decision.
fn is_told(event: &Envelope, view: &HoldView) -> bool {
    let is_decision = matches!(event.event, Event::HoldResolved(_));
    view.may_decide && view.row.closed.is_some() == is_decision
}

fn of_event(
    telling: &Delivery<'_>,
    target: &MailTarget<'_>,
    run: &Facts,
    event: &Envelope,
    view: &HoldView,
) -> Result<Message, String> {
    let page = mail_page(telling, target, run, event, view);
    let subject = format!("{}{}", notice::prefix(event), page.title);
    let hold = view.row.id.to_string();
    let seq = event.seq.0.to_string();
    let ids = MailIds { own: message_id(target, &[&hold, &seq]), thread: Some(message_id(target, &[&hold])) };
    built(telling, target, &subject, ids, &page)
}

fn test(telling: &Delivery<'_>, target: &MailTarget<'_>, id: &str) -> Result<Message, String> {
    let page = MailPage {
        title: "Test of the mail channel".into(),
        news: "This is a test. Nothing is asked.".into(),
        facts: Vec::new(),
        reason: None,
        reason_label: "",
        question: None,
        tool: None,
        arguments: None,
        is_cut: false,
        holds: Vec::new(),
        link: None,
        page: telling.public_url.map(str::to_owned),
        person: target.person.to_string(),
    };
    let ids = MailIds { own: message_id(target, &[id]), thread: None };
    built(telling, target, &page.title, ids, &page)
}

/// Everything that is pending, each in a line with its page: nothing is decided from here.
fn digest_mail(
    telling: &Delivery<'_>,
    target: &MailTarget<'_>,
    id: &str,
    holds: &[HoldView],
    more: usize,
) -> Result<Message, String> {
    let digest = DigestNotice::of(telling.public_url, holds, more);
    let page = MailPage {
        title: digest.title,
        news: digest.news,
        facts: Vec::new(),
        reason: None,
        reason_label: "",
        question: None,
        tool: None,
        arguments: None,
        is_cut: false,
        holds: digest.holds,
        link: None,
        page: telling.public_url.map(str::to_owned),
        person: target.person.to_string(),
    };
    let ids = MailIds { own: message_id(target, &[id]), thread: None };
    built(telling, target, &page.title, ids, &page)
}

/// The names of a mail.
struct MailIds {
    own: String,
    /// What it is a reply to.
    thread: Option<String>,
}

fn built(
    telling: &Delivery<'_>,
    target: &MailTarget<'_>,
    subject: &str,
    ids: MailIds,
    page: &MailPage,
) -> Result<Message, String> {
    let from: Mailbox =
        target.server.from.parse().map_err(|error| format!("the sender is not an address: {error}"))?;
    let to = target.address.parse().map_err(|error| format!("the mail address is none: {error}"))?;
    let html = MAILS.text("mail.html", page).ok_or("the mail could not be rendered; see the log")?;
    let at = UNIX_EPOCH + Duration::from_millis(u64::try_from(telling.now.0).unwrap_or_default());
    let mut builder = Message::builder()
        .from(from)
        .to(Mailbox::new(None, to))
        .subject(line(subject))
        .date(at)
        .message_id(Some(ids.own));
    if let Some(thread) = ids.thread {
        builder = builder.in_reply_to(thread.clone()).references(thread);
    }
    let body = MultiPart::alternative_plain_html(text(page), html);
    let mut message = builder.multipart(body).map_err(|error| format!("the mail cannot be made: {error}"))?;
    // No machine answers to it.
    for (name, value) in [("Auto-Submitted", "auto-generated"), ("X-Auto-Response-Suppress", "All")] {
        let name = HeaderName::new_from_ascii_str(name);
        message.headers_mut().insert_raw(HeaderValue::new(name, value.to_owned()));
    }
    Ok(message)
}

/// A name of a mail that is the same each time.
fn message_id(target: &MailTarget<'_>, parts: &[&str]) -> String {
    let parts: Vec<&[u8]> =
        parts.iter().copied().chain([target.person.as_str()]).map(str::as_bytes).collect();
    let Digest(bytes) = digest::of_parts("standfast.mail.1", &parts);
    let name = base32::encode(bytes.get(..20).unwrap_or_default());
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
    let domain: String = match target.server.from.rsplit_once('@') {
        Some((_, domain)) => domain.chars().filter(is_plain).collect(),
        None => "localhost".into(),
    };
    format!("<{name}@{domain}>")
}

fn mail_page(
    telling: &Delivery<'_>,
    target: &MailTarget<'_>,
    run: &Facts,
    event: &Envelope,
    view: &HoldView,
) -> MailPage {
    let told = HoldNotice::of(telling.public_url, run, event, view, WHOLE);
    MailPage {
        title: told.title,
        news: told.news,
        facts: told.facts,
        reason: told.reason,
        reason_label: told.reason_label,
        question: told.question,
        tool: told.tool,
        arguments: told.arguments,
        is_cut: !told.is_whole,
        holds: Vec::new(),
        link: target.link.map(str::to_owned),
        page: told.page,
        person: target.person.to_string(),
    }
}

/// One line without anything that a header or a reader could take for something else.
fn line(text: &str) -> String {
    let plain = visible(text);
    let plain = plain.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut line: String = plain.take(SUBJECT + 1).collect();
    if line.chars().count() > SUBJECT {
        line = line.chars().take(SUBJECT - 1).chain(['…']).collect();
    }
    line
}

/// The same as text.
fn text(page: &MailPage) -> String {
    let mut parts = vec![visible(&page.title).into_owned(), visible(&page.news).into_owned()];
    let facts: Vec<String> =
        page.facts.iter().map(|(name, value)| format!("{name}: {}", visible(value))).collect();
    parts.push(facts.join("\n"));
    parts.extend(page.reason.iter().map(|reason| format!("{}: {}", page.reason_label, visible(reason))));
    parts.extend(page.question.iter().map(|question| visible(question).into_owned()));
    if let (Some(tool), Some(arguments)) = (&page.tool, &page.arguments) {
        parts.push(format!("{}: arguments, byte for byte\n{}", visible(tool), visible(arguments)));
    }
    let holds: Vec<String> =
        page.holds.iter().map(|(title, page)| format!("{}\n{page}", visible(title))).collect();
    parts.push(holds.join("\n\n"));
    if page.is_cut {
        parts.push("It is too long for a mail. Sign in to see all of it and to decide.".into());
    }
    parts.extend(page.link.iter().map(|link| {
        format!(
            "Decide as {} (opening the page decides nothing; pass the link on to nobody):\n{link}",
            visible(&page.person)
        )
    }));
    parts.extend(page.page.iter().map(|page| format!("Sign in and see everything:\n{page}")));
    parts.retain(|part| !part.is_empty());
    parts.join("\n\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    /// T17, T20: no header gets a second line, and nothing of it is hidden.
    #[test]
    fn t20_a_subject_is_one_line() {
        let odd = "Approve x?\r\nBcc: evil@example.com\n\n<b>\u{202e}abc\u{0}";
        let line = line(odd);
        assert!(!line.contains(char::is_control) && line.contains("U+202E"), "{line}");
        assert_eq!(super::line(&"x".repeat(500)).chars().count(), SUBJECT);
        assert_eq!(super::line("Approve ls?"), "Approve ls?");
    }

    /// T20: text of others is text, in both forms.
    #[test]
    fn t20_nothing_of_a_mail_is_markup() {
        let page = MailPage {
            title: "Approve <script>?".into(),
            news: "n".into(),
            facts: vec![("Agent", "<i>".into())],
            reason: Some("<img src=x>".into()),
            reason_label: "Why it is held",
            question: None,
            tool: Some("t".into()),
            arguments: Some("{\"a\":\"</pre><a href='x'>\u{202e}\"}".into()),
            is_cut: false,
            holds: vec![("<u>".into(), "https://a.example/approve/x".into())],
            link: Some("https://a.example/link/x".into()),
            page: None,
            person: "alice".into(),
        };
        let html = MAILS.text("mail.html", &page).unwrap();
        for markup in ["<script", "<i>", "<u>", "<img", "<a href='x'", "\u{202e}"] {
            assert!(!html.contains(markup), "{markup}: {html}");
        }
        assert!(html.contains("href=\"https:&#x2f;&#x2f;a.example&#x2f;link&#x2f;x\""), "{html}");
        let text = text(&page);
        assert!(text.contains("https://a.example/link/x") && text.contains("⟨U+202E⟩"), "{text}");
    }
    /// T17: of 300 strings nothing is hidden in the text of a mail, its HTML or its subject, and nothing of them is markup.
    #[test]
    fn t17_300_strings_show_what_they_are_in_a_mail() {
        use crate::labels::hidden_characters::{is_hidden, is_hidden_in_lines};
        let corpus = include_str!("../../../testkit/corpus/display.jsonl");
        let strings: Vec<(String, usize)> =
            corpus.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(strings.len() >= 300, "{}", strings.len());
        for (odd, hidden) in &strings {
            let page = MailPage {
                title: odd.clone(),
                news: odd.clone(),
                facts: vec![("Agent", odd.clone())],
                reason: Some(odd.clone()),
                reason_label: "Why it is held",
                question: Some(odd.clone()),
                tool: Some(odd.clone()),
                arguments: Some(odd.clone()),
                is_cut: false,
                holds: vec![(odd.clone(), "https://a.example/approve/x".into())],
                link: Some("https://a.example/link/x".into()),
                page: None,
                person: odd.clone(),
            };
            let (text, subject) = (text(&page), line(odd));
            let html = MAILS.text("mail.html", &page).unwrap();
            assert!(!subject.contains(is_hidden), "{odd:?}: {subject:?}");
            assert!(!text.contains(is_hidden_in_lines), "{odd:?}: {text:?}");
            assert!(!html.contains(is_hidden_in_lines), "{odd:?}: {html:?}");
            assert!(html.matches("⟨U+").count() >= 8 * hidden, "{odd:?}: {html:?}");
        }
    }
}
