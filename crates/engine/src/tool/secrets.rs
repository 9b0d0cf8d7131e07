//! Secrets that the outside was given for a call: cut from whatever it says before that becomes an event (T29).
//!
//! A job that echoes its request, or a server that shows the headers it got, would otherwise write them into the log, its
//! exports and every webhook. Knows nothing of where secrets come from; each tool names its own.

use std::fmt;

use base64::prelude::{BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE_NO_PAD, Engine as _};
use standfast_core::body::Body;
use standfast_core::command::Choice;
use standfast_core::hold::Ask;
use standfast_core::json::RawJson;
use standfast_core::message::ToolResult;
use zeroize::{Zeroize as _, ZeroizeOnDrop};

use super::{Outcome, Suspension};

/// What stands in the place of a secret.
const CUT: &str = "[secret]";

/// Shorter texts occur by chance, and nobody should use them as secrets.
const SHORTEST: usize = 6;

/// The same for a part of a header or a variable of a program, which may be no secret at all.
const SHORTEST_PART: usize = 8;

/// Headers whose values are no secrets.
const PLAIN_HEADERS: [&str; 6] = ["accept", "content-", "user-agent", "a2a-", "mcp-", "idempotency-key"];

/// What the name of a variable has in it when its value is a secret.
const SECRET_NAMES: [&str; 7] = ["key", "token", "secret", "pass", "credential", "auth", "bearer"];

/// Texts that must not reach the log.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secrets(Vec<String>);

impl Drop for Secrets {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl ZeroizeOnDrop for Secrets {}

impl fmt::Debug for Secrets {
    /// Without them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({})", self.0.len())
    }
}

impl Secrets {
    /// These, in every spelling that an echo has: as they are, in capitals where they are hex, escaped for JSON or for an
    /// address, in base64.
    pub fn of(secrets: impl IntoIterator<Item = String>) -> Secrets {
        let mut all: Vec<String> =
            secrets.into_iter().filter(|secret| secret.len() >= SHORTEST).flat_map(spellings).collect();
        // The longest first: one may be part of another.
        all.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        all.dedup();
        Secrets(all)
    }

    /// What is secret in these headers: of `Authorization: Bearer x`, `x`.
    #[must_use]
    pub fn of_headers<'a>(headers: impl Iterator<Item = (&'a String, &'a String)>) -> Secrets {
        let is_plain = |name: &str| PLAIN_HEADERS.iter().any(|plain| name.starts_with(plain));
        let secret = headers.filter(|(name, _)| !is_plain(&name.to_lowercase()));
        let parts = secret.flat_map(|(_, value)| value.split([' ', ',', ';', '=']).chain([value.as_str()]));
        Secrets::of(parts.filter(|part| part.len() >= SHORTEST_PART).map(str::to_owned))
    }

    /// What is secret in these variables, by their names.
    #[must_use]
    pub fn of_variables<'a>(variables: impl Iterator<Item = (&'a String, &'a String)>) -> Secrets {
        let is_secret = |name: &str| SECRET_NAMES.iter().any(|part| name.to_lowercase().contains(part));
        let secret = variables.filter(|(name, value)| is_secret(name) && value.len() >= SHORTEST_PART);
        Secrets::of(secret.map(|(_, value)| value.clone()))
    }

    /// Both.
    #[must_use]
    pub fn and(mut self, mut more: Secrets) -> Secrets {
        self.0.append(&mut more.0);
        self.0.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        self.0.dedup();
        self
    }

    /// A message of a protocol, which is JSON, without them.
    #[must_use]
    pub fn cut_message(&self, text: String) -> String {
        if self.0.is_empty() {
            return text;
        }
        match RawJson::parse(&text) {
            Ok(json) => self.cut_json(json).text().to_owned(),
            Err(_) => self.cut(text),
        }
    }

    /// A text without them.
    #[must_use]
    pub fn cut(&self, text: String) -> String {
        let found = self.0.iter().filter(|secret| text.contains(secret.as_str()));
        let found: Vec<&String> = found.collect();
        found.into_iter().fold(text, |text, secret| text.replace(secret.as_str(), CUT))
    }

    /// A JSON value without them: looked for in what each string says, however it is escaped. Everything else stays byte
    /// for byte.
    #[must_use]
    pub fn cut_json(&self, json: RawJson) -> RawJson {
        if self.0.is_empty() {
            return json;
        }
        let (mut cut, mut rest) = (String::new(), json.text());
        while let Some((before, from)) = rest.split_once('"') {
            let (literal, after) = from.split_at(end_of_string(from));
            let quoted = format!("\"{literal}");
            let said: String = serde_json::from_str(&quoted).unwrap_or_default();
            let clean = self.cut(said.clone());
            cut.push_str(before);
            if clean == said {
                cut.push_str(&quoted)
            } else {
                cut.push_str(RawJson::string(&clean).text())
            }
            rest = after;
        }
        cut.push_str(rest);
        if cut == json.text() {
            return json;
        }
        // Two members whose names were secrets are one name now; nothing of that is worth keeping.
        RawJson::parse(&cut).unwrap_or_else(|_| RawJson::string(CUT))
    }

    /// A value without them.
    #[must_use]
    pub fn cut_body(&self, body: Body) -> Body {
        match body {
            Body::Text(text) => Body::Text(self.cut(text)),
            Body::Json(json) => Body::Json(self.cut_json(json)),
            Body::Blob(name) => Body::Blob(name),
        }
    }

    /// A result without them.
    #[must_use]
    pub fn cut_result(&self, result: ToolResult) -> ToolResult {
        match result {
            ToolResult::Ok(body) => ToolResult::Ok(self.cut_body(body)),
            ToolResult::Failed(body) => ToolResult::Failed(self.cut_body(body)),
        }
    }

    /// The result of a start, without them.
    #[must_use]
    pub fn cut_outcome(&self, outcome: Outcome) -> Outcome {
        if self.0.is_empty() {
            return outcome;
        }
        match outcome {
            Outcome::Done(result) => Outcome::Done(self.cut_result(result)),
            Outcome::Unknown(why) => Outcome::Unknown(self.cut(why)),
            Outcome::Pending(pending) => {
                let Suspension { kind, ask, timeout, secret } = *pending;
                Outcome::Pending(Box::new(Suspension { kind, ask: self.cut_ask(ask), timeout, secret }))
            }
        }
    }

    /// What is decided, without them.
    #[must_use]
    pub fn cut_wanted(&self, wanted: Choice) -> Choice {
        match wanted {
            Choice::ApproveEdited { arguments } => {
                Choice::ApproveEdited { arguments: self.cut_json(arguments) }
            }
            Choice::Deny { reason } => Choice::Deny { reason: reason.map(|reason| self.cut(reason)) },
            Choice::Answer { value } => Choice::Answer { value: self.cut_body(value) },
            Choice::Fail { error } => Choice::Fail { error: self.cut_body(error) },
            Choice::Approve | Choice::Withdraw => wanted,
        }
    }

    fn cut_ask(&self, ask: Ask) -> Ask {
        Ask {
            reason: ask.reason.map(|reason| self.cut(reason)),
            warning: ask.warning.map(|warning| self.cut(warning)),
            // What rules say is not a tool's business.
            stakes: ask.stakes,
            question: ask.question.map(|question| self.cut_body(question)),
            options: ask.options.into_iter().map(|option| self.cut(option)).collect(),
            answer_schema: ask.answer_schema.map(|schema| self.cut_json(schema)),
            data: ask.data.map(|data| self.cut_body(data)),
            interim: ask.interim.map(|interim| self.cut_body(interim)),
            external_ref: ask.external_ref.map(|name| self.cut(name)),
            expected_at: ask.expected_at,
            child: ask.child,
            resume: ask.resume.map(|state| Box::new(self.cut_body(*state))),
            target: ask.target,
        }
    }
}

/// The bytes up to and with the quote that ends a string.
fn end_of_string(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match (is_escaped, byte) {
            (true, _) => is_escaped = false,
            (false, b'\\') => is_escaped = true,
            (false, b'"') => return at + 1,
            (false, _) => {}
        }
    }
    text.len()
}

fn spellings(secret: String) -> Vec<String> {
    let json = RawJson::string(&secret).text().trim_matches('"').to_owned();
    let is_kept = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let percent = secret
        .bytes()
        .map(|byte| if is_kept(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") });
    let percent: String = percent.collect();
    let is_hex = secret.bytes().all(|byte| byte.is_ascii_hexdigit());
    let capitals = is_hex.then(|| secret.to_uppercase());
    let mut all = vec![
        BASE64_STANDARD_NO_PAD.encode(&secret),
        BASE64_URL_SAFE_NO_PAD.encode(&secret),
        json,
        percent,
        secret,
    ];
    all.extend(capitals);
    all.sort();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets() -> Secrets {
        Secrets::of(["0123456789abcdef".to_owned(), "a \"quoted\" one/".to_owned(), "short".to_owned()])
    }

    /// T29: in every spelling, and nothing else is touched.
    #[test]
    fn t29_an_echo_is_cut_however_it_is_spelled() {
        for (said, left) in [
            ("before 0123456789abcdef after", "before [secret] after"),
            ("0123456789ABCDEF", "[secret]"),
            ("MDEyMzQ1Njc4OWFiY2RlZg==", "[secret]=="),
            ("a%20%22quoted%22%20one%2F", "[secret]"),
            (r#"{"s":"a \"quoted\" one/"}"#, r#"{"s":"[secret]"}"#),
            ("a \"quoted\" one/", "[secret]"),
            ("a short text", "a short text"),
        ] {
            assert_eq!(secrets().cut(said.to_owned()), left);
        }
    }

    /// T29: JSON is searched by what its strings say; numbers and spaces stay as they were.
    #[test]
    fn json_stays_byte_for_byte_around_a_secret() {
        for (said, left) in [
            (r#"{"n": 1.0e5 ,"s":"0123456789abcdef"}"#, r#"{"n": 1.0e5 ,"s":"[secret]"}"#),
            (r#"["\u0030123456789abcd\u0065f","\u00e9"]"#, r#"["[secret]","\u00e9"]"#),
            (r#"{"a \"quoted\" one\/":[]}"#, r#"{"[secret]":[]}"#),
            (r#"{"nested":"{\"s\":\"0123456789abcdef\"}"}"#, r#"{"nested":"{\"s\":\"[secret]\"}"}"#),
            (r#"{"0123456789abcdef":1,"0123456789ABCDEF":2}"#, r#""[secret]""#),
            (
                r#"{"plain" : "text \" with quote", "x": null}"#,
                r#"{"plain" : "text \" with quote", "x": null}"#,
            ),
        ] {
            assert_eq!(secrets().cut_json(RawJson::parse(said).unwrap()).text(), left);
        }
    }

    #[test]
    fn headers_and_variables_are_told_apart_by_their_names() {
        let pairs = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let headers = pairs(&[("Authorization", "Bearer abcdefgh12"), ("Accept", "application/json")]);
        let found = Secrets::of_headers(headers.iter().map(|(name, value)| (name, value)));
        assert_eq!(
            found.cut("application/json abcdefgh12 Bearer".into()),
            "application/json [secret] Bearer"
        );
        let variables = pairs(&[("API_KEY", "abcdefgh12"), ("REGION", "eu-central-1")]);
        let found = Secrets::of_variables(variables.iter().map(|(name, value)| (name, value)));
        assert_eq!(found.cut("eu-central-1 abcdefgh12".into()), "eu-central-1 [secret]");
    }
}
