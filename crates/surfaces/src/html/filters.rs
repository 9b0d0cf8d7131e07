//! How ids and times look on every page: short, with the whole of it one hover, selection or click away.
//!
//! `{{ run.id|id }}` or `{{ run.id|id("/runs/" ~ run.id) }}`; `{{ run.started|when }}` or `{{ run.started|when("distance") }}`
//! for what `ShownInstant` is. The whole id stands in the page, so selecting the short one copies all of it.

use minijinja::HtmlEscape;
use minijinja::value::Value;
use minijinja::{Error, ErrorKind};

use crate::labels::hidden_characters::visible;

/// Characters of an id that are shown after its kind.
const TAIL: usize = 6;
/// Characters that ids have at least after their kind.
const ID_MIN: usize = 16;

/// An id: its kind and its last characters, as a link if there is an address.
pub(super) fn id(text: String, address: Option<String>) -> Value {
    let text = visible(&text).into_owned();
    let head = text.find('_').map_or(0, |at| at + 1);
    // A name that somebody chose is no id, and says nothing by its end.
    let is_id = text[head..].len() >= ID_MIN && text[head..].bytes().all(|byte| byte.is_ascii_alphanumeric());
    let tail = text.char_indices().rev().nth(TAIL - 1).filter(|_| is_id).map_or(0, |(at, _)| at);
    let whole = HtmlEscape(&text);
    let inner = if tail > head {
        let (kind, middle, end) = (&text[..head], &text[head..tail], &text[tail..]);
        format!(
            "{}<span class=\"id-middle\">{}</span><span class=\"dots\" aria-hidden=\"true\">…</span>{}",
            HtmlEscape(kind),
            HtmlEscape(middle),
            HtmlEscape(end)
        )
    } else {
        whole.to_string()
    };
    Value::from_safe_string(match address {
        Some(address) => {
            let address = HtmlEscape(&address).to_string();
            // The link leads somewhere, so that the id has a button of its own to be copied by.
            format!(
                "<a class=\"id\" href=\"{address}\" title=\"{whole}\" data-id=\"{whole}\">{inner}</a>\
                 <button type=\"button\" class=\"copy with-script\" data-copy=\"{whole}\" title=\"Copy {whole}\">\
                 <span class=\"for-readers\">Copy {whole}</span></button>"
            )
        }
        None => format!("<span class=\"id\" title=\"{whole}\" data-id=\"{whole}\">{inner}</span>"),
    })
}

/// An instant: how long ago, with the exact one on hover; or its `distance`, or its exact `text`.
pub(super) fn when(instant: Value, form: Option<String>) -> Result<Value, Error> {
    let part = |name: &str| {
        let part = instant.get_attr(name)?;
        let text = part.as_str().map(|text| HtmlEscape(text).to_string());
        text.ok_or_else(|| Error::new(ErrorKind::InvalidOperation, format!("an instant has no {name}")))
    };
    let form = form.unwrap_or_else(|| "relative".into());
    let (iso, exact, shown) = (part("iso")?, part("text")?, part(&form)?);
    Ok(Value::from_safe_string(format!("<time datetime=\"{iso}\" title=\"{exact}\">{shown}</time>")))
}

/// A text as a part of an address.
pub(super) fn encoded(text: String) -> String {
    let letter = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    text.bytes().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use minijinja::context;

    use super::*;

    #[test]
    fn an_id_is_short_to_the_eye_and_whole_to_a_selection() {
        let short = id("run_0123456789abcdef".into(), Some("/runs/run_0123456789abcdef".into())).to_string();
        let (link, button) = short.split_once("<button").unwrap();
        assert!(button.contains("data-copy=\"run_0123456789abcdef\""), "{button}");
        let text: String =
            link.split('<').filter_map(|part| part.split_once('>')).map(|(_, text)| text).collect();
        assert_eq!(text.replace('…', ""), "run_0123456789abcdef");
        assert!(short.contains("run_<span class=\"id-middle\">0123456789</span>"), "{short}");
        assert!(
            short.starts_with("<a class=\"id\" href=\"&#x2f;runs&#x2f;run_0123456789abcdef\""),
            "{short}"
        );
    }

    #[test]
    fn a_name_that_somebody_chose_is_not_shortened() {
        for name in ["Refund for Ann", "team_retrospective-of-november", "ses_short"] {
            assert_eq!(
                id(name.into(), None).to_string(),
                format!("<span class=\"id\" title=\"{name}\" data-id=\"{name}\">{name}</span>")
            );
        }
    }

    /// T20: whatever is given as an id is text.
    #[test]
    fn an_id_that_is_none_is_escaped() {
        let shown = id("\"><img src=x>\u{202e}".into(), None).to_string();
        assert!(!shown.contains("<img") && !shown.contains('\u{202e}'), "{shown}");
        assert_eq!(
            id("abc".into(), None).to_string(),
            "<span class=\"id\" title=\"abc\" data-id=\"abc\">abc</span>"
        );
    }

    #[test]
    fn a_time_has_its_exact_instant_on_hover() {
        let instant = context! { iso => "I", text => "T", relative => "1 min ago", distance => "1 min" };
        assert_eq!(
            when(instant.clone(), None).unwrap().to_string(),
            "<time datetime=\"I\" title=\"T\">1 min ago</time>"
        );
        assert!(when(instant.clone(), Some("distance".into())).unwrap().to_string().contains(">1 min<"));
        assert!(when(instant, Some("no".into())).is_err());
    }
}
