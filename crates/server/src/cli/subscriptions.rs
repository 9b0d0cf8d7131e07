//! `standfast subscriptions`: who is notified of what, and failed deliveries.
//!
//! The types are what these commands read of the native API; words stay words, so that a newer server's are shown.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::client::{Failure, Form, Patience, Server, ServerArgs, ask, joined, read, segment};
use super::plain::{Text, table};

/// What is done with subscriptions.
#[derive(Debug, Subcommand)]
pub(super) enum Subscriptions {
    /// List subscriptions.
    List(Listing),
    /// Create a subscription; prints its secret, which is not shown again.
    Create(Create),
    /// Show a subscription.
    Show(SubscriptionArgs),
    /// Delete a subscription and its dead letters.
    Delete(SubscriptionArgs),
    /// Rotate the secret of a subscription and print the new one. For a day deliveries carry both signatures.
    Rotate(SubscriptionArgs),
    /// Send a signed test delivery.
    Test(SubscriptionArgs),
    /// Enable a disabled subscription.
    Enable(SubscriptionArgs),
    /// Disable a subscription.
    Disable(SubscriptionArgs),
    /// List dead letters: deliveries that failed for good. Without a subscription: those of all that you see.
    DeadLetters(DeadLetters),
    /// Resend a dead letter, or all of a subscription.
    Resend(Resend),
}

/// All of them.
#[derive(Debug, Args)]
pub(super) struct Listing {
    #[command(flatten)]
    asking: ServerArgs,
}

/// A new webhook subscription.
#[derive(Debug, Args)]
pub(super) struct Create {
    /// The webhook URL.
    url: String,
    /// Only events of this run.
    #[arg(long, conflicts_with = "agent")]
    run: Option<String>,
    /// Only events of this agent's runs. Without run and agent: all events.
    #[arg(long)]
    agent: Option<String>,
    /// An event type, or `*`. May be repeated. Default: events of holds, and the end of runs.
    #[arg(long = "event", value_name = "KIND")]
    events: Vec<String>,
    #[command(flatten)]
    asking: ServerArgs,
}

/// One of them.
#[derive(Debug, Args)]
pub(super) struct SubscriptionArgs {
    /// The id of the subscription.
    subscription: String,
    #[command(flatten)]
    asking: ServerArgs,
}

/// Dead letters of one of them, or of all.
#[derive(Debug, Args)]
pub(super) struct DeadLetters {
    /// The id of the subscription. Default: all.
    subscription: Option<String>,
    #[command(flatten)]
    asking: ServerArgs,
}

/// A dead letter of one of them, or all of it.
#[derive(Debug, Args)]
pub(super) struct Resend {
    /// The id of the subscription.
    subscription: String,
    /// The id of the dead letter. Default: all.
    letter: Option<String>,
    #[command(flatten)]
    asking: ServerArgs,
}

#[derive(Debug, Deserialize)]
struct Body {
    id: Text,
    run: Option<Text>,
    agent: Option<Text>,
    url: Text,
    events: Vec<Text>,
    owner: Text,
    state: Text,
    disabled_because: Option<Text>,
    created_at: Text,
    secret: Option<Text>,
}

#[derive(Debug, Deserialize)]
struct Letter {
    id: Text,
    run: Text,
    from_seq: u64,
    tries: u32,
    given_up_at: Text,
    reason: Text,
}

#[derive(Debug, Deserialize)]
struct LetterId {
    id: String,
}

#[derive(Debug, Deserialize)]
struct PingResponse {
    delivered: bool,
    status: Option<u16>,
    error: Option<Text>,
}

pub(super) fn run(command: &Subscriptions) -> ExitCode {
    match command {
        Subscriptions::List(listing) => ask(&listing.asking, list),
        Subscriptions::Create(create) => ask(&create.asking, |server| {
            let body = json!({
                "url": create.url, "run": create.run, "agent": create.agent,
                "events": (!create.events.is_empty()).then_some(&create.events),
            });
            shown(server, &server.post("/subscriptions", &body.to_string(), Patience::Usual)?)
        }),
        Subscriptions::Show(one) => ask(&one.asking, |server| shown(server, &server.get(&one.path(""))?)),
        Subscriptions::Delete(one) => ask(&one.asking, |server| {
            server.delete(&one.path(""))?;
            done(server, &format!("{} deleted", one.subscription))
        }),
        Subscriptions::Rotate(one) => changed(one, "/rotate"),
        Subscriptions::Enable(one) => changed(one, "/enable"),
        Subscriptions::Disable(one) => changed(one, "/disable"),
        Subscriptions::Test(one) => ask(&one.asking, |server| {
            let text = server.post(&one.path("/test"), "{}", Patience::Usual)?;
            let pinged: PingResponse = read(&text)?;
            match (server.form, pinged.delivered) {
                (Form::Json, true) => Ok(text),
                (Form::Text, true) => {
                    Ok(format!("delivered; the receiver answered {}", pinged.status.unwrap_or(0)))
                }
                (Form::Json | Form::Text, false) => {
                    let said = pinged.error.map_or_else(String::new, |error| error.to_string());
                    Err(Failure::Refused { said, body: text })
                }
            }
        }),
        Subscriptions::DeadLetters(wanted) => ask(&wanted.asking, |server| match &wanted.subscription {
            Some(one) => letters(server, one),
            None => all_letters(server),
        }),
        Subscriptions::Resend(resend) => ask(&resend.asking, |server| resent(server, resend)),
    }
}

fn resent(server: &Server, resend: &Resend) -> Result<String, Failure> {
    let path = letters_of(&resend.subscription);
    let wanted: Vec<String> = match &resend.letter {
        Some(letter) => vec![letter.clone()],
        None => {
            let items = server.list(&path, &[])?;
            let id = |item: &RawValue| Ok(read::<LetterId>(item.get())?.id);
            items.iter().map(|item| id(item)).collect::<Result<_, Failure>>()?
        }
    };
    for letter in &wanted {
        server.post(&format!("{path}/{}/resend", segment(letter)), "{}", Patience::Usual)?;
    }
    match (&resend.letter, wanted.len()) {
        (Some(_), _) => done(server, "queued for delivery"),
        (None, 0) => done(server, "no dead letters"),
        (None, count) => done(server, &format!("queued for delivery: {count}")),
    }
}

fn letters_of(subscription: &str) -> String {
    format!("/subscriptions/{}/dead-letters", segment(subscription))
}

fn changed(one: &SubscriptionArgs, what: &str) -> ExitCode {
    ask(&one.asking, |server| shown(server, &server.post(&one.path(what), "{}", Patience::Usual)?))
}

fn done(server: &Server, what: &str) -> Result<String, Failure> {
    match server.form {
        Form::Json => Ok("{}".into()),
        Form::Text => Ok(what.to_owned()),
    }
}

impl SubscriptionArgs {
    fn path(&self, what: &str) -> String {
        format!("/subscriptions/{}{what}", segment(&self.subscription))
    }
}

impl Body {
    fn hears(&self) -> String {
        match (&self.run, &self.agent) {
            (Some(run), _) => format!("run {run}"),
            (None, Some(agent)) => format!("agent {agent}"),
            (None, None) => "everything".into(),
        }
    }
}

fn shown(server: &Server, text: &str) -> Result<String, Failure> {
    if server.form == Form::Json {
        return Ok(text.to_owned());
    }
    let body: Body = read(text)?;
    let events: Vec<String> = body.events.iter().map(ToString::to_string).collect();
    let mut lines = format!("{}  {}\n", body.id, body.state);
    if let Some(why) = &body.disabled_because {
        lines.push_str(&format!("reason:  {why}\n"));
    }
    let (hears, events) = (body.hears(), events.join(", "));
    lines.push_str(&format!("url:     {}\nscope:   {hears}\nevents:  {events}\n", body.url));
    lines.push_str(&format!("owner:   {}\ncreated: {}\n", body.owner, body.created_at));
    if let Some(secret) = &body.secret {
        lines.push_str(&format!("secret:  {secret}\n(save it: it is not shown again)\n"));
    }
    Ok(lines)
}

fn list(server: &Server) -> Result<String, Failure> {
    let items = server.list("/subscriptions", &[])?;
    if server.form == Form::Json {
        return Ok(joined("subscriptions", &items));
    }
    if items.is_empty() {
        return Ok("no subscriptions".into());
    }
    let row = |item: &RawValue| {
        let body: Body = read(item.get())?;
        Ok(vec![body.id.to_string(), body.state.to_string(), body.hears(), body.url.to_string()])
    };
    let rows: Vec<Vec<String>> = items.iter().map(|item| row(item)).collect::<Result<_, Failure>>()?;
    Ok(table(&["SUBSCRIPTION", "STATE", "SCOPE", "URL"], &rows))
}

fn letters(server: &Server, subscription: &str) -> Result<String, Failure> {
    let items = server.list(&letters_of(subscription), &[])?;
    if server.form == Form::Json {
        return Ok(joined("dead_letters", &items));
    }
    if items.is_empty() {
        return Ok("no dead letters".into());
    }
    let rows: Vec<Vec<String>> = items.iter().map(|item| row_of(item)).collect::<Result<_, Failure>>()?;
    Ok(table(&LETTER, &rows))
}

/// The columns of a dead letter.
const LETTER: [&str; 6] = ["LETTER", "RUN", "FROM", "ATTEMPTS", "FAILED AT", "REASON"];

fn row_of(item: &RawValue) -> Result<Vec<String>, Failure> {
    let letter: Letter = read(item.get())?;
    let (from, tries) = (letter.from_seq.to_string(), letter.tries.to_string());
    let texts = [letter.id, letter.run, letter.given_up_at, letter.reason].map(|text| text.to_string());
    let [id, run, at, reason] = texts;
    Ok(vec![id, run, from, tries, at, reason])
}

/// Those of every subscription, with whom each was for.
fn all_letters(server: &Server) -> Result<String, Failure> {
    let (mut found, mut rows) = (Vec::new(), Vec::new());
    for item in server.list("/subscriptions", &[])? {
        let body: Body = read(item.get())?;
        let id = body.id.to_string();
        for letter in server.list(&letters_of(&id), &[])? {
            let named = [vec![id.clone(), body.owner.to_string(), body.url.to_string()], row_of(&letter)?];
            rows.push(named.concat());
            let mut letter: Map<String, Value> = read(letter.get())?;
            letter.insert("subscription".into(), json!(id));
            letter.insert("url".into(), json!(body.url.to_string()));
            found.push(letter);
        }
    }
    if server.form == Form::Json {
        return Ok(json!({"dead_letters": found, "next_cursor": null}).to_string());
    }
    if rows.is_empty() {
        return Ok("no dead letters".into());
    }
    let columns = [&["SUBSCRIPTION", "OWNER", "URL"][..], &LETTER].concat();
    Ok(table(&columns, &rows))
}
