//! Approving further calls with a held one: the rule that would be saved, and what the approval sends of it.
//!
//! The rule is shown first; the approval repeats its digest, so that what is saved is what was shown. The list of what was saved
//! is `standfast grants`.

use std::process::ExitCode;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::listing;
use crate::cli::client::{Failure, Form, Patience, ServerArgs, ask, read, segment};
use crate::cli::plain::Text;

/// Which calls are meant.
#[derive(Debug, Clone, Args)]
pub(super) struct GrantTerms {
    /// How many further calls.
    #[arg(long, value_name = "N")]
    uses: Option<u32>,
    /// Until when, such as 2026-12-24T18:00:00Z.
    #[arg(long, value_name = "INSTANT")]
    until: Option<String>,
    /// In what they may differ: ARGUMENT=up_to, =same_folder, =any_text or =command:WORDS. May be repeated.
    #[arg(long, value_name = "ARGUMENT=HOW", value_parser = like)]
    like: Vec<Like>,
    /// Only calls of the same session.
    #[arg(long)]
    same_session: bool,
}

/// The rule of a standing approval.
#[derive(Debug, Args)]
pub(super) struct GrantRule {
    /// The id of the hold, or its beginning.
    id: String,
    #[command(flatten)]
    wish: GrantTerms,
    #[command(flatten)]
    asking: ServerArgs,
}

/// In what a call may differ, as it is sent.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Like {
    argument: String,
    may_be: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    words: Option<usize>,
}

/// What is asked for, as it is sent.
#[derive(Debug, Serialize)]
pub(super) struct GrantWish<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    uses: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<&'a str>,
    #[serde(skip_serializing_if = "<[Like]>::is_empty")]
    like: &'a [Like],
    same_session: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<&'a str>,
}

fn like(text: &str) -> Result<Like, String> {
    let wrong = || "write ARGUMENT=up_to, =same_folder, =any_text or =command:WORDS".to_owned();
    let (argument, how) = text.split_once('=').ok_or_else(wrong)?;
    let (may_be, words) = match how.split_once(':') {
        Some(("command", words)) => ("command", Some(words.parse().map_err(|_| wrong())?)),
        Some(_) => return Err(wrong()),
        None => (how, None),
    };
    Ok(Like { argument: argument.to_owned(), may_be: may_be.to_owned(), words })
}

/// Why an approval with a wish and without its rule is refused.
pub(super) const NO_RULE: &str = "--uses, --until, --like and --same-session approve further calls, which needs --rule with the \
                                  digest that `standfast holds grant-rule` shows for them; nothing was decided";

impl GrantTerms {
    /// Whether nothing is asked for.
    pub(super) fn is_empty(&self) -> bool {
        self.uses.is_none() && self.until.is_none() && self.like.is_empty() && !self.same_session
    }

    /// What is sent; of an approval with the digest of the rule.
    pub(super) fn body<'a>(&'a self, digest: Option<&'a str>) -> GrantWish<'a> {
        let GrantTerms { uses, until, like, same_session } = self;
        GrantWish { uses: *uses, until: until.as_deref(), like, same_session: *same_session, digest }
    }
}

/// A rule as it would be saved.
#[derive(Deserialize)]
struct Rule {
    rule: Vec<Text>,
    uses: u32,
    until: Text,
    digest: Text,
}

pub(super) fn grant_rule(wanted: &GrantRule) -> ExitCode {
    let GrantRule { id, wish, asking } = wanted;
    ask(asking, |server| {
        let id = listing::whole_id(server, id)?;
        let body = serde_json::to_string(&wish.body(None)).unwrap_or_default();
        let text = server.post(&format!("/holds/{}/grant-rule", segment(&id)), &body, Patience::Usual)?;
        if server.form == Form::Json {
            return Ok::<String, Failure>(text);
        }
        let Rule { rule, uses, until, digest } = read(&text)?;
        let mut shown = String::from("rule:\n");
        shown.extend(rule.iter().map(|line| format!("    | {line}\n")));
        shown.push_str(&format!("uses:     {uses}\nuntil:    {until}\ndigest:   {digest}\n"));
        shown.push_str(
            "nothing is saved yet: approve with the same options and --rule DIGEST to save exactly this\n",
        );
        Ok(shown)
    })
}
