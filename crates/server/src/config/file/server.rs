//! The section `server`: where it listens, who may call, how much is allowed.
//!
//! What the command line says (`--listen`, `--data`) wins over what stands here.

use std::net::IpAddr;

use clap::ValueEnum;
use garde::Validate;
use ipnet::IpNet;
use schemars::JsonSchema;
use serde::Deserialize;
use standfast_core::time::Millis;
use standfast_engine::card_key::CardKey;
use standfast_surfaces::jwt;

use super::encryption::Encryption;
use super::llm::web_address;
use super::people::Links;
use super::rates::Rates;
use super::traces::Traces;
use super::values::{Secret, SelfApproval, Span};

/// The server itself.
#[derive(Debug, Default, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
pub struct Server {
    /// The address to listen on, as ADDRESS:PORT. Any address other than loopback needs `auth`.
    #[schemars(extend("default" = "127.0.0.1:8080", "format" = "socket-address"))]
    pub listen: Option<String>,
    /// The public URL of this server, for links and callbacks.
    #[garde(inner(custom(web_address)))]
    pub public_url: Option<String>,
    /// Host names that requests may use, besides the server's address: without scheme and port.
    pub hosts: Vec<String>,
    /// Proxies in front of this server, as addresses or networks such as `10.0.0.0/8`. Only their `X-Forwarded-For` or
    /// `Forwarded` header is trusted, from its right end, for rate-limiting failed logins by client address.
    #[garde(inner(custom(proxy_network)))]
    pub trusted_proxies: Vec<String>,
    /// The agent that A2A clients find at the root of the server. Without it, the only agent, if there is only one; each
    /// agent is at `/v1/agents/NAME` in any case.
    pub default_agent: Option<String>,
    /// Authentication. Without it only this machine may call.
    #[garde(dive)]
    pub auth: Option<Auth>,
    /// Sessions of browsers, and of `standfast login` at an identity provider.
    #[garde(dive)]
    pub sessions: Sessions,
    /// Whether the user who started a run may decide its holds, for all agents.
    #[schemars(extend("default" = "allow"))]
    pub self_approval: Option<SelfApproval>,
    /// Settings for several nodes on one database.
    #[garde(dive)]
    pub nodes: Nodes,
    /// Retention.
    #[garde(dive)]
    pub retention: Retention,
    /// Encryption of payloads at rest, for SQLite databases; see docs/encryption.md. Without this section there is none.
    #[garde(dive)]
    pub encryption: Option<Encryption>,
    /// Signed heads of the database, with which `standfast audit verify --heads` detects deleted runs and rollbacks.
    #[garde(dive)]
    pub audit: Option<Audit>,
    /// TLS of the server itself. Without it the server speaks plain HTTP: on this machine, or behind a proxy.
    #[garde(dive)]
    pub tls: Option<Tls>,
    /// The log, on standard error.
    #[garde(dive)]
    pub log: Log,
    /// Traces for an OpenTelemetry collector. Without this section there are none.
    #[garde(dive)]
    pub traces: Option<Traces>,
    /// Limits.
    #[garde(dive)]
    pub limits: Limits,
    /// Approval links. Without this section there are none.
    #[garde(dive)]
    pub links: Option<Links>,
    /// Webhook deliveries.
    #[garde(dive)]
    pub webhooks: Webhooks,
    /// What A2A clients are offered.
    #[garde(dive)]
    pub a2a: A2a,
    /// Callbacks of external jobs.
    #[garde(dive)]
    pub async_tools: AsyncTools,
    /// Tasks of inboxes.
    #[garde(dive)]
    pub inboxes: Inboxes,
}

/// TLS of the server itself.
#[derive(Debug, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields)]
#[garde(allow_unvalidated)]
pub struct Tls {
    /// A PEM file with the certificate and those between it and its authority, relative to this file. Reloaded when it
    /// changes.
    #[garde(length(min = 1))]
    pub certificate: String,
    /// A PEM file with the private key, for the server's eyes only, relative to this file.
    #[garde(length(min = 1))]
    pub key: String,
}

/// The log.
#[derive(Debug, Default, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
pub struct Log {
    /// Lines of text, or one JSON object a line. `--log-format` wins.
    #[schemars(extend("default" = "text"))]
    pub format: Option<LogFormat>,
    /// From which level on: `error`, `warn`, `info`, `debug` or `trace`; also by part of the program, as in
    /// `info,standfast_engine=debug`. The environment variable `RUST_LOG` wins.
    #[garde(inner(custom(log_level)))]
    #[schemars(extend("default" = "info"))]
    pub level: Option<String>,
}

/// How the log is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// For people.
    Text,
    /// For machines.
    Json,
}

fn log_level(text: &str, (): &()) -> garde::Result {
    // A variable that is not at hand is taken to be right.
    if text.contains("${") || tracing_subscriber::EnvFilter::try_new(text).is_ok() {
        Ok(())
    } else {
        Err(garde::Error::new("must be a level such as info, or levels such as info,standfast_engine=debug"))
    }
}

/// What A2A clients are offered.
#[derive(Debug, Default, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
pub struct A2a {
    /// Whether clients may name receivers of push notifications. The limits of `webhooks` apply.
    #[schemars(extend("default" = true))]
    pub push_notifications: Option<bool>,
    /// Which decisions without a `hold_id` count: `shown`, those on the one hold that the caller was last shown on the
    /// task; `strict`, none: every decision needs its `hold_id`.
    #[schemars(extend("default" = "shown"))]
    pub decisions: Option<A2aDecisions>,
    /// The key that signs agent cards. Without it they are not signed.
    #[garde(dive)]
    pub card_signature: Option<CardSignature>,
}

/// Which decisions count that name no hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum A2aDecisions {
    /// Decisions of callers who were shown the hold, by the last response about its task.
    Shown,
    /// None.
    Strict,
}

/// What the cards of agents are signed with.
#[derive(Debug, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields)]
#[garde(allow_unvalidated)]
pub struct CardSignature {
    /// An Ed25519 key as PEM, from the environment: create one with `openssl genpkey -algorithm ed25519`. The same on
    /// every node.
    #[garde(custom(card_key))]
    pub key: Secret,
    /// The id of the key, for clients.
    #[garde(length(min = 1))]
    pub key_id: String,
    /// Where clients find the public key, as a JSON Web Key Set.
    #[garde(inner(custom(web_address)))]
    pub jku: Option<String>,
}

fn card_key(key: &Secret, (): &()) -> garde::Result {
    // A variable that is not at hand is taken to be right.
    if key.expose().contains("${") {
        Ok(())
    } else {
        CardKey::read(key.expose(), "", None).map(drop).map_err(garde::Error::new)
    }
}

/// Callbacks of external jobs.
#[derive(Debug, Default, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
pub struct AsyncTools {
    /// How long a settled call is listed under `/async-tool/pending`. The log of its run keeps it.
    #[garde(inner(custom(a_second_or_more)))]
    #[schemars(extend("default" = "7d"))]
    pub keep_settled: Option<Span>,
    /// How long a call counts as `processing` after the last report; then it is `waiting` again.
    #[garde(inner(custom(a_second_or_more)))]
    #[schemars(extend("default" = "10m"))]
    pub processing_lasts: Option<Span>,
    /// Maximum number of reports of one caller in a minute.
    #[garde(inner(range(min = 1)))]
    #[schemars(extend("default" = 600))]
    pub per_caller: Option<u32>,
    /// Maximum number of reports about one call in a minute.
    #[garde(inner(range(min = 1)))]
    #[schemars(extend("default" = 60))]
    pub per_call: Option<u32>,
}

/// Tasks of inboxes.
#[derive(Debug, Default, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
pub struct Inboxes {
    /// How long a task lies in its inbox until somebody must have taken it, unless it has a `taskTtl` of its own; then it
    /// fails. `0` means without limit.
    #[schemars(extend("default" = "24h"))]
    pub task_ttl: Option<Span>,
}

/// Webhook deliveries.
#[derive(Debug, Default, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
pub struct Webhooks {
    /// The key from which the secrets of subscriptions are derived, and with which logins at MCP servers are encrypted:
    /// long, random, the same on every node. Without it the server generates one and stores it in its data directory as
    /// `webhook.key`. To change it, move the old one to `previous_keys`.
    #[garde(inner(custom(long_enough)))]
    pub key: Option<Secret>,
    /// Previous keys, the newest first. They still decrypt, verify reports of jobs that started with them, and sign in
    /// addition to the new one. Remove one when every receiver has its new secret and no older run is held.
    #[garde(length(max = 4), inner(custom(long_enough)))]
    pub previous_keys: Vec<Secret>,
    /// Receivers that may have a private address, also without https: HOST or HOST:PORT. All others must be public.
    pub allowed_hosts: Vec<String>,
    /// How long a receiver may take to respond.
    #[garde(inner(custom(a_second_or_more)))]
    #[schemars(extend("default" = "15s"))]
    pub timeout: Option<Span>,
    /// Delays between delivery attempts. After the last one a delivery becomes a dead letter. Default: 5s, 30s, 2m,
    /// 10m, 30m, 1h, 3h, 6h, 12h, 24h, 24h.
    pub retries: Option<Vec<Span>>,
}

pub(super) fn long_enough(key: &Secret, (): &()) -> garde::Result {
    // A variable that is not at hand is taken to be right.
    if key.expose().len() >= 32 || key.expose().contains("${") {
        Ok(())
    } else {
        Err(garde::Error::new("must have 32 characters or more; `openssl rand -base64 32` makes one"))
    }
}

/// How a server is one of several on one database.
#[derive(Debug, Default, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
pub struct Nodes {
    /// The name of this node. Default: the host name.
    #[garde(inner(length(min = 1, max = 200)))]
    pub name: Option<String>,
    /// The lease: how long a node may be silent before others take over its runs. A shorter lease resumes sooner after
    /// a crash, but also takes over from a node that only paused. The same on every node.
    #[garde(inner(custom(three_seconds_or_more)))]
    #[schemars(extend("default" = "6s"))]
    pub take_over_after: Option<Span>,
    /// How often a node polls for due runs.
    #[garde(inner(custom(a_moment)))]
    #[schemars(extend("default" = "500ms"))]
    pub poll: Option<Span>,
}

/// Retention.
#[derive(Debug, Default, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
pub struct Retention {
    /// When the contents of an ended run are erased: messages, calls and results. That it existed, its times and its
    /// hash chain stay. Default: never.
    #[garde(inner(custom(a_second_or_more)))]
    pub ended_runs: Option<Span>,
}

/// Signed heads of the database.
#[derive(Debug, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields)]
#[garde(allow_unvalidated)]
pub struct Audit {
    /// The file that signed heads are appended to, relative to this file. Put it on another disk or machine than the
    /// database.
    pub heads: String,
    /// A file with the Ed25519 key that heads are signed with, as PEM: create one with `openssl genpkey -algorithm
    /// ed25519`. Keep it off the database machine if possible.
    pub key_file: Option<String>,
    /// A command that prints the key, with its arguments, instead of `key_file`.
    #[serde(default)]
    pub key_command: Vec<String>,
    /// How often a head is signed, if anything changed.
    #[serde(default)]
    #[garde(inner(custom(a_second_or_more)))]
    #[schemars(extend("default" = "1h"))]
    pub every: Option<Span>,
    /// A command, with its arguments, that gets each head on its standard input, to send it on: to a webhook, a bucket, a log
    /// host. `{no}` in an argument is the number of the head. What fails is sent again with the next round.
    #[serde(default)]
    pub send_command: Vec<String>,
}

fn three_seconds_or_more(span: &Span, (): &()) -> garde::Result {
    if (Millis::seconds(3)..=Millis::seconds(3600)).contains(&span.0) {
        Ok(())
    } else {
        Err(garde::Error::new("must be from 3 seconds to an hour"))
    }
}

fn a_moment(span: &Span, (): &()) -> garde::Result {
    if (Millis(10)..=Millis::seconds(60)).contains(&span.0) {
        Ok(())
    } else {
        Err(garde::Error::new("must be from 10 milliseconds to a minute"))
    }
}

/// Who may call.
#[derive(Debug, Default, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
pub struct Auth {
    /// Whether API keys are accepted. Create them with `standfast keys create`; they are never written into this file.
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
    /// The URL of the provider's JWK set: https, or http on this machine. Default: what the discovery document of the issuer
    /// says (`ISSUER/.well-known/openid-configuration`).
    #[garde(inner(custom(keys_address)))]
    pub jwks_url: Option<String>,
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
    /// How long cached keys are used when they cannot be fetched again; after that tokens are refused.
    #[garde(inner(custom(a_second_or_more)))]
    #[schemars(extend("default" = "24h"))]
    pub max_age: Option<Span>,
    /// The accepted clock skew.
    #[schemars(extend("default" = "60s"))]
    pub skew: Option<Span>,
    /// The claim with the name of the user. With a slash in front it is a JSON pointer, as in `/realm_access/roles`.
    #[garde(inner(length(min = 1)))]
    #[schemars(extend("default" = "sub"))]
    pub user_claim: Option<String>,
    /// The claim with the groups: a list, or a string separated by spaces.
    #[garde(inner(length(min = 1)))]
    #[schemars(extend("default" = "groups"))]
    pub groups_claim: Option<String>,
    /// The claim with the roles. The role `admin` makes an administrator.
    #[garde(inner(length(min = 1)))]
    #[schemars(extend("default" = "roles"))]
    pub roles_claim: Option<String>,
    /// The claim with the tenant of the user, as text. Tenants share nothing but the server; a token without it is
    /// refused. Without this key everyone belongs to the tenant `default`.
    #[garde(inner(length(min = 1)))]
    pub tenant_claim: Option<String>,
    /// Sign-in of people at this provider (OpenID Connect), for pages and for `standfast login`. Needs `server.public_url`.
    #[garde(dive)]
    pub sign_in: Option<SignIn>,
}

/// Sign-in of people at an identity provider.
#[derive(Debug, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields)]
#[garde(allow_unvalidated)]
pub struct SignIn {
    /// The client id of this server at the provider. Register `PUBLIC_URL/sign-in/callback` as its redirect URI.
    #[garde(length(min = 1))]
    pub client_id: String,
    /// Its secret, from the environment. Without it the client is a public one, which PKCE protects.
    pub client_secret: Option<Secret>,
    /// What the provider is called on the button "Sign in with …".
    #[garde(inner(length(min = 1, max = 60)))]
    #[schemars(extend("default" = "your identity provider"))]
    pub label: Option<String>,
    /// The scopes to ask for. With `offline_access`, or where the provider gives refresh tokens anyway, groups and roles are
    /// asked for again while somebody is signed in. Default: openid, profile, email.
    #[garde(inner(length(min = 1)))]
    pub scopes: Option<Vec<String>>,
    /// How often the provider is asked whether somebody who signed in still is who they were, with which groups and roles.
    #[garde(inner(custom(a_second_or_more)))]
    #[schemars(extend("default" = "15m"))]
    pub renew: Option<Span>,
    /// The client id of `standfast login`: a public client with the redirect URI `http://127.0.0.1/callback`, on any port.
    /// Without it people sign in on pages only.
    #[garde(inner(length(min = 1)))]
    pub cli_client_id: Option<String>,
}

/// How long people stay signed in.
#[derive(Debug, Default, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
pub struct Sessions {
    /// A session ends when nobody has used it for this long. A page that is open by itself is no use.
    #[garde(inner(custom(a_second_or_more)))]
    #[schemars(extend("default" = "24h"))]
    pub idle: Option<Span>,
    /// A session ends after this long in any case. One by a sign-in that cannot be renewed ends after 12 hours.
    #[garde(inner(custom(a_second_or_more)))]
    #[schemars(extend("default" = "7d"))]
    pub lasts: Option<Span>,
}

/// A network, or a single address as one.
pub fn network(text: &str) -> Option<IpNet> {
    let single = || text.parse::<IpAddr>().ok().map(IpNet::from);
    text.parse::<IpNet>().ok().map(|network| network.trunc()).or_else(single)
}

fn proxy_network(text: &str, (): &()) -> garde::Result {
    // A variable that is not at hand is taken to be right.
    if text.contains("${") || network(text).is_some() {
        Ok(())
    } else {
        Err(garde::Error::new("is not an address or network; write 10.0.0.7 or 10.0.0.0/8"))
    }
}

fn keys_address(text: &str, (): &()) -> garde::Result {
    jwt::keys_address(text).map(|_| ()).map_err(garde::Error::new)
}

pub(super) fn a_second_or_more(span: &Span, (): &()) -> garde::Result {
    if span.0 >= Millis::seconds(1) { Ok(()) } else { Err(garde::Error::new("must be a second or more")) }
}

/// Limits.
#[derive(Debug, Default, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
pub struct Limits {
    /// How long a request may wait for a run.
    #[schemars(extend("default" = "300s"))]
    pub max_wait: Option<Span>,
    /// Maximum size of a request body in bytes.
    #[garde(inner(range(min = 1024)))]
    #[schemars(extend("default" = 1048576))]
    pub max_body: Option<u32>,
    /// Maximum number of connections; further ones wait.
    #[garde(inner(range(min = 1)))]
    #[schemars(extend("default" = 20000))]
    pub max_connections: Option<u32>,
    /// How many writes may wait for the store on a node before new runs are refused with 503. Decisions and reads are not.
    #[garde(inner(range(min = 1)))]
    #[schemars(extend("default" = 1024))]
    pub waiting_writes: Option<u32>,
    /// How many stored runs may wait for a slot before new ones are refused with 503.
    #[garde(inner(range(min = 1)))]
    #[schemars(extend("default" = 100000))]
    pub queued_runs: Option<u64>,
    /// Maximum number of open holds of a run.
    #[garde(inner(range(min = 1)))]
    #[schemars(extend("default" = 64))]
    pub open_holds: Option<u32>,
    /// Of how many open holds of one agent people are notified. Those above are listed and can be decided, but nobody is
    /// notified or reminded of them. Default: of all.
    #[garde(inner(range(min = 1)))]
    pub notified_holds_per_agent: Option<u64>,
    /// The same for the holds of the runs of one user. Default: of all.
    #[garde(inner(range(min = 1, max = 1000)))]
    pub notified_holds_per_owner: Option<u64>,
    /// Maximum number of model replies of a run.
    #[garde(inner(range(min = 1)))]
    #[schemars(extend("default" = 200))]
    pub turns: Option<u32>,
    /// Maximum number of tokens of a run. Default: without limit.
    #[garde(inner(range(min = 1)))]
    pub tokens: Option<u64>,
    /// Maximum cost of a run, in the units of `llms.<name>.price`. Default: without limit.
    #[garde(inner(range(min = 0.000001)))]
    pub cost: Option<f64>,
    /// Maximum number of attempts for one model reply; then the run fails.
    #[garde(inner(range(min = 1)))]
    #[schemars(extend("default" = 5))]
    pub model_attempts: Option<u32>,
    /// Maximum number of attempts of an idempotent call; then a hold asks a person.
    #[garde(inner(range(min = 1)))]
    #[schemars(extend("default" = 3))]
    pub call_attempts: Option<u32>,
    /// How long a denied call stays denied, without a new hold, when the model repeats it in the same session, unless a
    /// person has sent a message there since. `0s` opens a hold every time.
    #[schemars(extend("default" = "24h"))]
    pub deny_memory: Option<Span>,
    /// Maximum nesting of sub-runs.
    #[garde(inner(range(min = 1, max = 8)))]
    #[schemars(extend("default" = 8))]
    pub depth: Option<u32>,
    /// Maximum number of sub-runs of a run.
    #[garde(inner(range(min = 1, max = 64)))]
    #[schemars(extend("default" = 64))]
    pub children: Option<u32>,
    /// How often somebody may ask.
    #[garde(dive)]
    pub rates: Rates,
}
