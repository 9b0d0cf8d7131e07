//! The text that people are asked with before a call runs (S3-7, S3-11, S3-12).
//!
//! Fills in a prompt and nothing more; what a reply to it means is `words.rs`.

use crate::json::RawJson;
use crate::message::shown_input;
use crate::name::ToolName;

const DEFAULT: &str = "🔐 Tool Approval Required\n\nTool: {tool}\nInput: {input}\n\nPlease respond with one of: approve, deny, modify";

/// The text of an approval: the tool's own prompt or the default one, with `{tool}` and `{input}` filled in. What is
/// filled in is never looked at again, so that arguments cannot pull other values into the text. A warning follows.
#[must_use]
pub fn warned_approval_text(
    prompt: Option<&str>,
    tool: &ToolName,
    arguments: &RawJson,
    warning: Option<&str>,
) -> String {
    let text = approval_text(prompt, tool, arguments);
    match warning {
        Some(warning) => format!("{text}\n\n⚠️ {warning}"),
        None => text,
    }
}

/// The same without a warning.
#[must_use]
pub fn approval_text(prompt: Option<&str>, tool: &ToolName, arguments: &RawJson) -> String {
    let input = shown_input(arguments);
    let values = [("{tool}", tool.as_str()), ("{input}", input.as_str())];
    let mut rest = prompt.unwrap_or(DEFAULT);
    let mut text = String::with_capacity(rest.len() + tool.as_str().len() + input.len());
    while let Some(at) = rest.find('{') {
        let (before, from) = rest.split_at(at);
        let (place, value) = match values.iter().find(|(place, _)| from.starts_with(place)) {
            Some((place, value)) => (place.len(), *value),
            None => (1, "{"),
        };
        text.push_str(before);
        text.push_str(value);
        rest = &from[place..];
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{json, tool};

    /// S3-7, S3-12: the default text, to the letter.
    #[test]
    fn without_a_prompt_the_default_text_is_asked() {
        let arguments = json(r#"{"command": "rm -rf /tmp/old-files"}"#);
        let text = approval_text(None, &tool("execute_command"), &arguments);
        assert_eq!(
            text,
            "🔐 Tool Approval Required\n\nTool: execute_command\nInput: rm -rf /tmp/old-files\n\n\
             Please respond with one of: approve, deny, modify"
        );
    }

    /// S3-11: `{tool}` and `{input}` are replaced, everything else stays as it is.
    #[test]
    fn a_prompt_of_the_tool_takes_its_place() {
        let arguments = json(r#"{"n": 1}"#);
        let text = approval_text(Some("{{tool}: {input} or {other} {é"), &tool("write"), &arguments);
        assert_eq!(text, r#"{write: {"n": 1} or {other} {é"#);
    }

    #[test]
    fn what_is_filled_in_is_not_filled_in_again() {
        let arguments = json(r#"{"command": "echo {tool} {input}"}"#);
        let text = approval_text(Some("{input} with {tool}"), &tool("{input}"), &arguments);
        assert_eq!(text, "echo {tool} {input} with {input}");
    }
}
