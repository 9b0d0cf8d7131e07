//! Scripts as YAML: what people write to test their agents without a provider (docs/scripted-model.md).
//!
//! A file becomes a `Script` once, with every mistake named by its line; nothing after it reads YAML. Arguments that
//! are written as a mapping become JSON text here, in the order in which they are written.

use std::fmt;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use standfast_core::body::Body;
use standfast_core::json::RawJson;
use standfast_core::message::Part;
use standfast_core::time::Millis;

use super::scripted::{Line, Script, ScriptedReply};

/// Why a text is not a script.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct ScriptError {
    /// Where, counted from 1.
    pub line: u64,
    /// What is wrong there.
    pub message: String,
}

/// Reads a script.
pub fn parse(text: &str) -> Result<Script, ScriptError> {
    // Only `true` and `false` are truth values; `no` and `off` are words.
    let options = serde_saphyr::options! { strict_booleans: true };
    let file: ScriptText = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let error = error.without_snippet();
        let line = error.location().map_or(1, |location| location.line());
        let message = error.to_string();
        // The reader says where at the end of its message; here it stands in front.
        let what = message.rsplit_once(" at line ").map_or(message.as_str(), |(what, _)| what);
        ScriptError { line: line.max(1), message: what.to_owned() }
    })?;
    file.replies.script()
}

/// The replies of a script, as they stand in a file.
#[derive(Deserialize)]
#[serde(transparent)]
pub struct Replies(Vec<serde_saphyr::Spanned<ReplyText>>);

impl Replies {
    /// What they come to.
    pub fn script(self) -> Result<Script, ScriptError> {
        let lines: Result<Vec<Line>, ScriptError> = self.0.into_iter().map(line).collect();
        let lines = lines?;
        if lines.is_empty() {
            return Err(ScriptError { line: 1, message: "`replies` must have at least one reply".into() });
        }
        Ok(Script { lines })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptText {
    replies: Replies,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReplyText {
    text: Option<String>,
    deltas: Option<Vec<String>>,
    delta_delay: Option<Span>,
    data: Option<Json>,
    #[serde(default)]
    files: Vec<FileText>,
    #[serde(default)]
    calls: Vec<CallText>,
    delay: Option<Span>,
    error: Option<String>,
    retry_after: Option<Span>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CallText {
    tool: String,
    #[serde(default)]
    arguments: Arguments,
}

/// A file that a reply brings along: its bytes, or where they are.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileText {
    name: Option<String>,
    media_type: Option<String>,
    url: Option<String>,
    base64: Option<String>,
}

impl FileText {
    fn part(self) -> Result<Part, &'static str> {
        let content = match (self.url, self.base64) {
            (Some(url), None) if url.contains(':') => url,
            (None, Some(bytes)) if BASE64_STANDARD.decode(&bytes).is_ok() => bytes,
            (Some(_), None) => return Err("`url` of a file must be a whole address, with its scheme"),
            (None, Some(_)) => return Err("`base64` of a file must be bytes in base 64"),
            (_, _) => return Err("a file has either `url` or `base64`"),
        };
        Ok(Part::File { name: self.name, media_type: self.media_type, content: Body::text(content) })
    }
}

/// One reply of the script. Which keys go together is checked here.
fn line(reply: serde_saphyr::Spanned<ReplyText>) -> Result<Line, ScriptError> {
    let at = reply.referenced.line();
    let wrong = |message: &str| Err(ScriptError { line: at, message: message.to_owned() });
    let ReplyText { text, deltas, delta_delay, data, files, calls, delay, error, retry_after } = reply.value;
    let data = data.map(|Json(text)| RawJson::parse(&text).map(|json| Part::Data(Body::Json(json))));
    let Ok(mut parts) = data.into_iter().collect::<Result<Vec<Part>, _>>() else {
        return wrong("`data` is not JSON");
    };
    for file in files {
        match file.part() {
            Ok(file) => parts.push(file),
            Err(why) => return wrong(why),
        }
    }
    if text.is_some() && deltas.is_some() {
        return wrong("a reply has either `text` or `deltas`, which are joined to its text");
    }
    if delta_delay.is_some() && text.is_none() && deltas.is_none() {
        return wrong("`delta_delay` belongs to `text` or `deltas`");
    }
    // A pace alone splits the text into its words.
    let deltas = deltas.or_else(|| {
        let paced = text.as_ref().filter(|_| delta_delay.is_some());
        paced.map(|text| text.split_inclusive(' ').map(str::to_owned).collect())
    });
    let deltas = deltas.unwrap_or_default();
    let text = text.or_else(|| (!deltas.is_empty()).then(|| deltas.concat()));
    let says = match error {
        Some(_) if text.is_some() || !calls.is_empty() || !parts.is_empty() => {
            return wrong("a reply with `error` has no `text`, `deltas`, `data`, `files` or `calls`");
        }
        Some(error) => ScriptedReply::Error { error, retry_after: retry_after.map(|span| span.0) },
        None if retry_after.is_some() => return wrong("`retry_after` belongs to `error`"),
        None if text.is_none() && calls.is_empty() && parts.is_empty() => {
            return wrong("a reply needs `text`, `deltas`, `data`, `files`, `calls` or `error`");
        }
        None => {
            let calls = calls.into_iter().map(|call| (call.tool, call.arguments.0)).collect();
            let pace = delta_delay.map_or(Millis(0), |span| span.0);
            ScriptedReply::Reply { text, parts, deltas, pace, calls }
        }
    };
    Ok(Line { delay: delay.map(|span| span.0), says })
}

/// A span as people write it: a whole number and `ms`, `s`, `m`, `h` or `d`.
pub struct Span(pub Millis);

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Span, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let unit = match unit {
            "ms" => Some(1),
            "s" => Some(1_000),
            "m" => Some(60_000),
            "h" => Some(3_600_000),
            "d" => Some(86_400_000),
            _ => None,
        };
        let span = number.parse::<i64>().ok().zip(unit).and_then(|(number, unit)| number.checked_mul(unit));
        let wrong = || D::Error::custom(format!("{text:?} is not a span such as 200ms, 2s, 5m, 1h or 7d"));
        span.map(|span| Span(Millis(span))).ok_or_else(wrong)
    }
}

/// The argument text of a call: a string is taken as it is, a mapping becomes JSON.
pub struct Arguments(pub String);

impl Default for Arguments {
    fn default() -> Arguments {
        Arguments("{}".into())
    }
}

impl<'de> Deserialize<'de> for Arguments {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Arguments, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Arguments;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a mapping, or a string with JSON text")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Arguments, E> {
                RawJson::parse(text).map_err(|error| E::custom(format!("`arguments`: {error}")))?;
                Ok(Arguments(text.to_owned()))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Arguments, A::Error> {
                JsonText.visit_map(map).map(|text| Arguments(text.0))
            }
        }
        deserializer.deserialize_any(V)
    }
}

/// Any YAML value as JSON text, members in their order.
#[derive(Debug, Clone)]
pub struct Json(pub String);

struct JsonText;

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Json, D::Error> {
        deserializer.deserialize_any(JsonText)
    }
}

impl<'de> Visitor<'de> for JsonText {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value that JSON has")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Json, E> {
        Ok(Json(value.to_string()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Json, E> {
        Ok(Json(value.to_string()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Json, E> {
        Ok(Json(value.to_string()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Json, E> {
        match serde_json::Number::from_f64(value) {
            // From here on a number has lost digits; the exact text can be written as a string.
            Some(_) if value.fract() == 0.0 && value.abs() >= 9_007_199_254_740_992.0 => Err(E::custom(
                "this number is too large to keep its digits; write `arguments` as a string with JSON text",
            )),
            Some(number) => Ok(Json(number.to_string())),
            None => Err(E::custom("JSON has neither infinity nor NaN")),
        }
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Json, E> {
        Ok(Json(RawJson::string(value).text().to_owned()))
    }

    fn visit_unit<E: Error>(self) -> Result<Json, E> {
        Ok(Json("null".into()))
    }

    fn visit_none<E: Error>(self) -> Result<Json, E> {
        self.visit_unit()
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Json, A::Error> {
        let mut items = Vec::new();
        while let Some(Json(item)) = seq.next_element()? {
            items.push(item);
        }
        Ok(Json(format!("[{}]", items.join(","))))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
        let mut members = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            let Json(value) = map.next_value()?;
            members.push(format!("{}:{value}", RawJson::string(&name).text()));
        }
        Ok(Json(format!("{{{}}}", members.join(","))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example in the documentation is a script, and says what the text around it says.
    #[test]
    fn the_documented_example_is_a_script() {
        let page = include_str!("../../../docs/scripted-model.md");
        let example = page.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
        let script = parse(example).unwrap();
        assert_eq!(script.lines.len(), 4, "{script:?}");
    }

    fn only(text: &str) -> Line {
        let Script { mut lines } = parse(text).unwrap();
        assert_eq!(lines.len(), 1);
        lines.remove(0)
    }

    fn calls(text: &str) -> Vec<(String, String)> {
        match only(text).says {
            ScriptedReply::Reply { calls, .. } => calls,
            ScriptedReply::Error { error, .. } => panic!("{error}"),
        }
    }

    #[test]
    fn argument_text_is_kept_byte_for_byte() {
        let script = "replies:\n- calls:\n  - tool: delete_file\n    arguments: '{\"size\":  9007199254740993000001}'\n";
        let expected = ("delete_file".to_owned(), "{\"size\":  9007199254740993000001}".to_owned());
        assert_eq!(calls(script), [expected]);
    }

    #[test]
    fn arguments_in_yaml_become_json_in_their_order() {
        let script = "replies:
- calls:
  - tool: write_file
    arguments:
      path: /tmp/x
      mode: 0o600
      deep: {z: [1, -2, 1.5, true, null, '7', no], a: {}}
      big: 18446744073709551615
  - tool: list
";
        let json = r#"{"path":"/tmp/x","mode":384,"deep":{"z":[1,-2,1.5,true,null,"7","no"],"a":{}},"big":18446744073709551615}"#;
        let expected = [("write_file".to_owned(), json.to_owned()), ("list".to_owned(), "{}".to_owned())];
        assert_eq!(calls(script), expected);
    }

    #[test]
    fn a_reply_brings_data_and_files_along() {
        let made = only(
            "replies:\n- data: {total: 42}\n  files:\n  - {name: a.txt, media_type: text/plain, base64: dGNr}\n  - {url: 'https://example.com/b'}\n",
        );
        let ScriptedReply::Reply { text: None, parts, .. } = made.says else { panic!("{made:?}") };
        let file = |name: Option<&str>, media_type: Option<&str>, content: &str| Part::File {
            name: name.map(str::to_owned),
            media_type: media_type.map(str::to_owned),
            content: Body::text(content),
        };
        let expected = [
            Part::Data(Body::Json(RawJson::parse(r#"{"total":42}"#).unwrap())),
            file(Some("a.txt"), Some("text/plain"), "dGNr"),
            file(None, None, "https://example.com/b"),
        ];
        assert_eq!(parts, expected);
    }

    #[test]
    fn words_delays_and_errors() {
        let said = only("replies:\n- deltas: [Do, ne, .]\n  delay: 200ms\n");
        assert_eq!(said.delay, Some(Millis(200)));
        assert!(matches!(said.says, ScriptedReply::Reply { text: Some(text), deltas, .. }
            if text == "Done." && deltas == ["Do", "ne", "."]));
        let paced = only("replies:\n- text: I will look\n  delta_delay: 20ms\n");
        assert!(matches!(paced.says, ScriptedReply::Reply { text: Some(text), deltas, pace: Millis(20), .. }
            if text == "I will look" && deltas == ["I ", "will ", "look"]));
        let failed = only("replies:\n- error: overloaded\n  retry_after: 2s\n");
        assert!(matches!(failed.says, ScriptedReply::Error { retry_after: Some(Millis(2_000)), .. }));
        let hopeless = only("replies:\n- error: no such model\n");
        assert!(matches!(hopeless.says, ScriptedReply::Error { retry_after: None, .. }));
    }

    #[test]
    fn every_mistake_has_its_line() {
        let wrong = |text: &str, line: u64, part: &str| {
            let error = parse(text).unwrap_err();
            assert!(error.line == line && error.message.contains(part), "{text}\n{error}");
        };
        wrong("replies:\n- text: a\n- txet: b\n", 3, "txet");
        wrong("replies:\n- text: a\n- text: b\n  deltas: [c]\n", 3, "either");
        wrong("replies:\n- text: a\n- delay: 1s\n", 3, "needs");
        wrong("replies:\n- text: a\n  retry_after: 1s\n", 2, "belongs to");
        wrong("replies:\n- calls:\n  - tool: x\n  delta_delay: 1s\n", 2, "belongs to");
        wrong("replies:\n- error: a\n  calls:\n  - tool: x\n", 2, "has no");
        wrong("replies:\n- error: a\n  data: {}\n", 2, "has no");
        wrong("replies:\n- files: [{name: a}]\n", 2, "either `url` or `base64`");
        wrong("replies:\n- files: [{url: a.txt}]\n", 2, "scheme");
        wrong("replies:\n- files: [{base64: '?'}]\n", 2, "base 64");
        wrong("replies:\n- text: a\n  delay: 5\n", 3, "not a span");
        wrong("replies:\n- text: a\n  delay: 5 minutes\n", 3, "not a span");
        wrong("replies:\n- calls:\n  - tool: x\n    arguments: '{'\n", 4, "not JSON");
        wrong("replies:\n- calls:\n  - tool: x\n    arguments: {n: .nan}\n", 4, ".nan");
        wrong("replies:\n- calls:\n  - tool: x\n    arguments: {n: 18446744073709551616}\n", 4, "too large");
        wrong("replies:\n- calls:\n  - tool: x\n    arguments: {n: 1, n: 2}\n", 4, "n");
        wrong("replies:\n- calls:\n  - arguments: {}\n", 3, "tool");
        assert_eq!(
            parse("replies:\n- txet: b\n").unwrap_err().to_string(),
            "line 2: unknown field `txet`, expected one of text, deltas, delta_delay, data, files, calls, delay, error, retry_after"
        );
        wrong("replies: []\n", 1, "at least one");
        wrong("", 1, "");
        wrong("replies:\n- text: 'a\n", 3, "");
    }
}
