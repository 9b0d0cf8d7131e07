//! The section `server`: where it listens, who may call, how much is allowed.
//!
//! What the command line says (`--listen`, `--data`) wins over what stands here.

use std::net::IpAddr;

use garde::Validate;
use ipnet::IpNet;
use schemars::JsonSchema;
use serde::Deserialize;
use standfast_core::time::Millis;

use super::llm::web_address;
use super::values::{Secret, SelfApproval, Span};
use crate::auth;
use crate::card_key::CardKey;

/// The server itself.
#[derive(Debug, Default, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
pub struct Server {
    /// Where to listen, as ADDRESS:PORT. Any address but one of this machine itself needs `auth`.
    #[schemars(extend("default" = "127.0.0.1:8080", "format" = "socket-address"))]
    pub listen: Option<String>,
    /// The address that others reach this server by; links and callbacks begin with it.
    #[garde(inner(custom(web_address)))]
    pub public_url: Option<String>,
    /// Names that callers know this server by, beside its address: without scheme and port.
    pub hosts: Vec<String>,
    /// Proxies in front of this server, as addresses or networks such as `10.0.0.0/8`. Only from these is `X-Forwarded-For` or
    /// `Forwarded` believed, from its right end, when failed logins are counted by the client's address.
    #[garde(inner(custom(proxy_network)))]
    pub trusted_proxies: Vec<String>,
    /// The agent that A2A clients find at the root of the server. Without it, the only agent, if there is only one; each
    /// agent is at `/v1/agents/NAME` in any case.
    pub default_agent: Option<String>,
    /// Who may call. Without it only this machine may.
    #[garde(dive)]
    pub auth: Option<Auth>,
    /// Whether whoever started a run may decide its holds, for all agents.
    #[schemars(extend("default" = "allow"))]
    pub self_approval: Option<SelfApproval>,
    /// How this server is one of several on one database.
    #[garde(dive)]
    pub nodes: Nodes,
    /// How long things are kept.
    #[garde(dive)]
    pub retention: Retention,
    /// Signed heads of the database, by which `standfast audit verify --heads` notices what is gone or was rolled back.
    #[garde(dive)]
    pub audit: Option<Audit>,
    /// How much is allowed.
    #[garde(dive)]
    pub limits: Limits,
    /// Telling other systems what happens.
    #[garde(dive)]
    pub webhooks: Webhooks,
    /// What A2A clients are offered.
    #[garde(dive)]
    pub a2a: A2a,
    /// How jobs elsewhere report back.
    #[garde(dive)]
    pub async_tools: AsyncTools,
}

/// What A2A clients are offered.
#[derive(Debug, Default, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
pub struct A2a {
    /// Whether clients may name receivers of push notifications. They are told within the bounds of `webhooks`.
    #[schemars(extend("default" = true))]
    pub push_notifications: Option<bool>,
    /// Which decisions count that name no hold: `shown`, those on the one hold that the caller was last shown on the task;
    /// `strict`, none: every decision needs its `hold_id`.
    #[schemars(extend("default" = "shown"))]
    pub decisions: Option<A2aDecisions>,
    /// What the cards of agents are signed with. Without it they are not signed.
    #[garde(dive)]
    pub card_signature: Option<CardSignature>,
}

/// Which decisions count that name no hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum A2aDecisions {
    /// Those of callers who were shown the hold, by the last answer about its task.
    Shown,
    /// None.
    Strict,
}

/// What the cards of agents are signed with.
#[derive(Debug, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields)]
#[garde(allow_unvalidated)]
pub struct CardSignature {
    /// An Ed25519 key as PEM, from the environment: `openssl genpkey -algorithm ed25519` makes one. The same on every node.
    #[garde(custom(card_key))]
    pub key: Secret,
    /// The name by which clients know the key.
    #[garde(length(min = 1))]
    pub key_id: String,
    /// Where clients find the public key, as a JSON Web Key Set.
    #[garde(inner(custom(web_address)))]
    pub jku: Option<String>,
}

fn card_key(key: &Secret, (): &()) -> garde::Result {
    // A variable that is not at hand is taken to be right.
    match key.expose().contains("${") {
        true => Ok(()),
        false => CardKey::read(key.expose(), "", None).map(drop).map_err(garde::Error::new),
    }
}

/// How jobs elsewhere report back.
#[derive(Debug, Default, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
pub struct AsyncTools {
    /// How long a call that is settled is still shown under `/async-tool/pending`. The log of its run keeps it.
    #[garde(inner(custom(a_second_or_more)))]
    #[schemars(extend("default" = "7d"))]
    pub keep_settled: Option<Span>,
    /// How long a call counts as `processing` after the last word of whoever does it; then it is `waiting` again.
    #[garde(inner(custom(a_second_or_more)))]
    #[schemars(extend("default" = "10m"))]
    pub processing_lasts: Option<Span>,
    /// How many reports one caller may send in a minute.
    #[garde(inner(range(min = 1)))]
    #[schemars(extend("default" = 600))]
    pub per_caller: Option<u32>,
    /// How many reports about one call there may be in a minute.
    #[garde(inner(range(min = 1)))]
    #[schemars(extend("default" = 60))]
    pub per_call: Option<u32>,
}

/// Telling other systems what happens.
#[derive(Debug, Default, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
pub struct Webhooks {
    /// What the secrets of subscriptions are made from, and what logins at MCP servers are sealed with: long, random, the same on every node. Without it the server makes
    /// one and keeps it in its data directory as `webhook.key`. To change it, move the old one to `previous_keys`.
    #[garde(inner(custom(long_enough)))]
    pub key: Option<Secret>,
    /// Keys of before, the newest first. They still open what was sealed with them, take the reports of jobs that began with
    /// them, and sign beside the new one. Remove one when every receiver has its new secret and no run waits from before.
    #[garde(length(max = 4), inner(custom(long_enough)))]
    pub previous_keys: Vec<Secret>,
    /// Hosts that may be told whatever their address is, also without https: HOST or HOST:PORT. All others must be public.
    pub allowed_hosts: Vec<String>,
    /// How long a receiver may take to answer.
    #[garde(inner(custom(a_second_or_more)))]
    #[schemars(extend("default" = "15s"))]
    pub timeout: Option<Span>,
    /// How long after each failed try the next one is. After the last a delivery is given up and listed as a dead letter.
    /// Without it: 5s, 30s, 2m, 10m, 30m, 1h, 3h, 6h, 12h, 24h, 24h.
    pub retries: Option<Vec<Span>>,
}

fn long_enough(key: &Secret, (): &()) -> garde::Result {
    // A variable that is not at hand is taken to be right.
    match key.expose().len() >= 32 || key.expose().contains("${") {
        true => Ok(()),
        false => {
            Err(garde::Error::new("must have 32 characters or more; `openssl rand -base64 32` makes one"))
        }
    }
}

/// How a server is one of several on one database.
#[derive(Debug, Default, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
pub struct Nodes {
    /// What this server is called among others; the name of the machine if it is left out.
    #[garde(inner(length(min = 1, max = 200)))]
    pub name: Option<String>,
    /// How long a server may be silent before others take over its runs. Shorter goes on sooner after a crash, and takes
    /// a machine that only stood still for a moment for dead. The same for all of them.
    #[garde(inner(custom(three_seconds_or_more)))]
    #[schemars(extend("default" = "6s"))]
    pub take_over_after: Option<Span>,
    /// How often a server looks for due runs when nobody tells it.
    #[garde(inner(custom(a_moment)))]
    #[schemars(extend("default" = "500ms"))]
    pub poll: Option<Span>,
}

/// How long things are kept.
#[derive(Debug, Default, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
pub struct Retention {
    /// How long after its end the contents of a run are erased: what was said, called and answered. That it was, when, and
    /// the chain of its hashes stay. For ever if it is left out.
    #[garde(inner(custom(a_second_or_more)))]
    pub ended_runs: Option<Span>,
}

/// Signed heads of the database.
#[derive(Debug, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields)]
#[garde(allow_unvalidated)]
pub struct Audit {
    /// The file that signed heads are added to, relative to this file. It belongs on another disk or machine than the
    /// database.
    pub heads: String,
    /// A file with the Ed25519 key that heads are signed with, as PEM: `openssl genpkey -algorithm ed25519` makes one. Never
    /// on the machine of the database, if that can be helped.
    pub key_file: Option<String>,
    /// A command that prints the key, with its arguments, instead of `key_file`.
    #[serde(default)]
    pub key_command: Vec<String>,
    /// How often a head is signed, if anything changed.
    #[serde(default)]
    #[garde(inner(custom(a_second_or_more)))]
    #[schemars(extend("default" = "1h"))]
    pub every: Option<Span>,
}

fn three_seconds_or_more(span: &Span, (): &()) -> garde::Result {
    match (Millis::seconds(3)..=Millis::seconds(3600)).contains(&span.0) {
        true => Ok(()),
        false => Err(garde::Error::new("must be from 3 seconds to an hour")),
    }
}

fn a_moment(span: &Span, (): &()) -> garde::Result {
    match (Millis(10)..=Millis::seconds(60)).contains(&span.0) {
        true => Ok(()),
        false => Err(garde::Error::new("must be from 10 milliseconds to a minute")),
    }
}

/// Who may call.
#[derive(Debug, Default, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
pub struct Auth {
    /// Whether API keys are taken. They are made with `standfast keys`, never written into this file.
    #[schemars(extend("default" = false))]
    pub api_keys: Option<bool>,
    /// Tokens of your identity provider.
    #[garde(dive)]
    pub jwt: Option<Jwt>,
}

/// Tokens of an identity provider.
#[derive(Debug, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields)]
#[garde(allow_unvalidated)]
pub struct Jwt {
    /// Where the provider publishes its keys: an https address, or http on this machine.
    #[garde(custom(keys_address))]
    pub jwks_url: String,
    /// What `iss` of a token must be.
    #[garde(length(min = 1))]
    pub issuer: String,
    /// What `aud` of a token must be or contain.
    #[garde(length(min = 1))]
    pub audience: String,
    /// How often the provider's keys are fetched again.
    #[garde(inner(custom(a_second_or_more)))]
    #[schemars(extend("default" = "15m"))]
    pub refresh: Option<Span>,
    /// How long they may be used when they cannot be fetched again; after that nobody with a token is let in.
    #[garde(inner(custom(a_second_or_more)))]
    #[schemars(extend("default" = "24h"))]
    pub max_age: Option<Span>,
    /// How far the clocks may be apart.
    #[schemars(extend("default" = "60s"))]
    pub skew: Option<Span>,
    /// The claim with the name of the user. With a slash in front it is a JSON pointer, as in `/realm_access/roles`.
    #[garde(inner(length(min = 1)))]
    #[schemars(extend("default" = "sub"))]
    pub user_claim: Option<String>,
    /// The claim with their groups: a list, or a text with spaces between them.
    #[garde(inner(length(min = 1)))]
    #[schemars(extend("default" = "groups"))]
    pub groups_claim: Option<String>,
    /// The claim with their roles. The role `admin` makes an administrator.
    #[garde(inner(length(min = 1)))]
    #[schemars(extend("default" = "roles"))]
    pub roles_claim: Option<String>,
    /// The claim with the tenant of the user, as text. Tenants share nothing but the server; a token without it is refused.
    /// Without this key everyone is of the tenant `default`.
    #[garde(inner(length(min = 1)))]
    pub tenant_claim: Option<String>,
}

/// A network, or a single address as one.
pub fn network(text: &str) -> Option<IpNet> {
    let single = || text.parse::<IpAddr>().ok().map(IpNet::from);
    text.parse::<IpNet>().ok().map(|network| network.trunc()).or_else(single)
}

fn proxy_network(text: &str, (): &()) -> garde::Result {
    // A variable that is not at hand is taken to be right.
    match text.contains("${") || network(text).is_some() {
        true => Ok(()),
        false => Err(garde::Error::new("is not an address or network; write 10.0.0.7 or 10.0.0.0/8")),
    }
}

fn keys_address(text: &str, (): &()) -> garde::Result {
    auth::keys_address(text).map(|_| ()).map_err(garde::Error::new)
}

fn a_second_or_more(span: &Span, (): &()) -> garde::Result {
    if span.0 >= Millis::seconds(1) { Ok(()) } else { Err(garde::Error::new("must be a second or more")) }
}

/// How much is allowed.
#[derive(Debug, Default, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
pub struct Limits {
    /// How long a caller who waits for a run is kept at most.
    #[schemars(extend("default" = "300s"))]
    pub max_wait: Option<Span>,
    /// How many bytes the body of a request may have.
    #[garde(inner(range(min = 1024)))]
    #[schemars(extend("default" = 1048576))]
    pub max_body: Option<u32>,
    /// How many connections there may be at once; more wait.
    #[garde(inner(range(min = 1)))]
    #[schemars(extend("default" = 20000))]
    pub max_connections: Option<u32>,
    /// How many holds of one run may be open.
    #[garde(inner(range(min = 1)))]
    #[schemars(extend("default" = 64))]
    pub open_holds: Option<u32>,
    /// How many replies of the model one run may have.
    #[garde(inner(range(min = 1)))]
    #[schemars(extend("default" = 200))]
    pub turns: Option<u32>,
    /// How many tokens one run may use; without limit if it is left out.
    #[garde(inner(range(min = 1)))]
    pub tokens: Option<u64>,
    /// What one run may cost, in the units of `llms.<name>.price`; without limit if it is left out.
    #[garde(inner(range(min = 0.000001)))]
    pub cost: Option<f64>,
    /// How often the model is asked for one reply before the run fails.
    #[garde(inner(range(min = 1)))]
    #[schemars(extend("default" = 5))]
    pub model_attempts: Option<u32>,
    /// How often a call that may be repeated is started before a person is asked.
    #[garde(inner(range(min = 1)))]
    #[schemars(extend("default" = 3))]
    pub call_attempts: Option<u32>,
    /// How long a call that somebody denied is refused without asking when the model raises it again in the same session,
    /// unless a person has said something there since. `0s` asks every time.
    #[schemars(extend("default" = "24h"))]
    pub deny_memory: Option<Span>,
    /// How deep agents may hand work to agents.
    #[garde(inner(range(min = 1, max = 8)))]
    #[schemars(extend("default" = 8))]
    pub depth: Option<u32>,
    /// How many runs one run may hand out.
    #[garde(inner(range(min = 1, max = 64)))]
    #[schemars(extend("default" = 64))]
    pub children: Option<u32>,
}
