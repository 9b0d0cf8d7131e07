//! Everything of a tenant as lines of text, and back: how runs move from one store to another.
//!
//! A line is a JSON object with one member that says what it is. Links go over byte for byte with their hashes, so the
//! chain that is verified in the new store is the one that was sealed in the old. Rows are made again from the events,
//! as every store makes them. Left out: leases, notices and idempotency keys, which mean nothing elsewhere, and runs whose
//! contents were erased.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use standfast_core::apply;
use standfast_core::digest::{self, Digest};
use standfast_core::event::{Envelope, Event};
use standfast_core::id::{RunId, Seq};
use standfast_core::link::{Contents, FIRST_PREVIOUS, Header, Link};
use standfast_core::name::{AgentName, SessionId, Tenant, UserId};
use standfast_core::project;
use standfast_core::run::Run;
use standfast_core::time::Timestamp;

use crate::batch::{AudienceMember, Batch, ExpectedHead, LeaseChange, SideWrite};
use crate::contract::Store;
use crate::error::StoreError;
use crate::pipeline::{HoldAudience, audiences, claim_puts};
use crate::query::{Credential, RunFilter, RunQuery, SessionChange, SessionKey, SessionQuery, SessionRow};
use crate::row_audit::RowEntry;
use crate::subscription::{Scope, Subscription, SubscriptionQuery};

/// The version of the lines.
const FORMAT: u32 = 1;

/// Rows that are read at once.
const AT_ONCE: usize = 500;

/// One line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    /// The first one.
    Standfast {
        format: u32,
        tenant: Tenant,
    },
    Definition {
        digest: Digest,
        text: String,
    },
    Session {
        agent: AgentName,
        session: SessionId,
        /// None in files of versions whose conversations belonged to nobody in particular.
        #[serde(default)]
        owner: Option<UserId>,
        metadata: String,
        closed: bool,
        updated_at: Timestamp,
    },
    Link(LinkLine),
    Blob {
        run: RunId,
        digest: Digest,
        text: String,
    },
    /// The run whose links came before it, as a check.
    Run {
        id: RunId,
        seq: Seq,
        head: Digest,
    },
    Credential(CredentialLine),
    Subscription(SubscriptionLine),
    Audit {
        at: Timestamp,
        entry: String,
    },
    /// The last one: without it something is missing.
    End(TransferCounts),
}

#[derive(Debug, Serialize, Deserialize)]
struct LinkLine {
    run: RunId,
    first: Seq,
    count: u32,
    at: Timestamp,
    actor: standfast_core::actor::Actor,
    hash: Digest,
    salt: String,
    payload: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct CredentialLine {
    prefix: String,
    hash: Digest,
    facts: String,
    expires_at: Option<Timestamp>,
    revoked_at: Option<Timestamp>,
}

#[derive(Debug, Serialize, Deserialize)]
struct SubscriptionLine {
    id: String,
    run: Option<RunId>,
    agent: Option<AgentName>,
    wants: u64,
    is_active: bool,
    facts: String,
    /// Empty in files of older versions.
    #[serde(default)]
    owner: String,
}

/// How much was moved.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransferCounts {
    /// Runs.
    pub runs: u64,
    /// Their links.
    pub links: u64,
    /// Conversations.
    pub sessions: u64,
    /// Runs that were left out because their contents were erased.
    pub erased: u64,
}

impl std::fmt::Display for TransferCounts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let TransferCounts { runs, links, sessions, erased } = self;
        write!(f, "{runs} runs, {links} links, {sessions} sessions, {erased} erased runs")
    }
}

/// Why nothing more was moved.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// A store refused it.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// The lines cannot be read or written.
    #[error("{0}")]
    Lines(#[from] std::io::Error),
    /// A line cannot be parsed.
    #[error("line {line}: {why}")]
    Bad {
        /// Which, from 1.
        line: u64,
        /// What is wrong with it.
        why: String,
    },
    /// There is something in the target already.
    #[error("the target already has runs; pass --into-existing to add to them")]
    NotEmpty,
}

/// What is exported.
#[derive(Debug, Clone, Default)]
pub struct ExportScope {
    /// Only the runs of this conversation, without keys and subscriptions.
    pub session: Option<(AgentName, SessionId)>,
}

/// Writes everything of a tenant, runs in the order in which they began. `progress` hears how many runs are done.
pub async fn export(
    store: &dyn Store,
    tenant: &Tenant,
    wanted: &ExportScope,
    out: &mut (dyn std::io::Write + Send),
    progress: &mut (dyn FnMut(u64) + Send),
) -> Result<TransferCounts, TransferError> {
    let mut moved = TransferCounts::default();
    put(out, &Line::Standfast { format: FORMAT, tenant: tenant.clone() })?;
    let mut known = BTreeSet::new();
    for (run, key) in runs(store, tenant, wanted).await? {
        let links = store.links(run, Seq(0), usize::MAX).await?;
        if links.iter().any(|link| matches!(link.contents, Contents::Erased { .. })) {
            moved.erased += 1;
            continue;
        }
        if known.insert(key.clone()) {
            moved.sessions += 1;
        }
        let mut head = (Seq(0), FIRST_PREVIOUS);
        for link in links {
            let corrupt =
                |bad: standfast_core::link::BadLink| StoreError::Corrupt { run, why: bad.to_string() };
            link.verify(head.1, head.0.plus(1)).map_err(corrupt)?;
            for envelope in link.events().map_err(corrupt)? {
                export_beside(store, tenant, run, &envelope.event, out).await?;
            }
            head = (Seq(link.next().0.saturating_sub(1)), link.hash);
            put(out, &Line::Link(link_line(link)?))?;
            moved.links += 1;
        }
        put(out, &Line::Run { id: run, seq: head.0, head: head.1 })?;
        moved.runs += 1;
        progress(moved.runs);
    }
    for key in known {
        if let Some(row) = store.session(key).await? {
            let SessionKey { agent, owner, session, tenant: _ } = row.key;
            let (metadata, closed, updated_at) = (row.metadata, row.closed, row.updated_at);
            let owner = Some(owner);
            put(out, &Line::Session { agent, session, owner, metadata, closed, updated_at })?;
        }
    }
    if wanted.session.is_none() {
        export_rest(store, tenant, out).await?;
    }
    put(out, &Line::End(moved.clone()))?;
    out.flush()?;
    Ok(moved)
}

/// The runs that are wanted, oldest first, each with its conversation.
async fn runs(
    store: &dyn Store,
    tenant: &Tenant,
    wanted: &ExportScope,
) -> Result<Vec<(RunId, SessionKey)>, StoreError> {
    let filter = match &wanted.session {
        Some((agent, session)) => RunFilter::Session(agent.clone(), session.clone()),
        None => RunFilter::All,
    };
    let (mut found, mut cursor) = (Vec::new(), None);
    loop {
        let query = RunQuery {
            tenant: tenant.clone(),
            filter: filter.clone(),
            phases: Vec::new(),
            since: None,
            cursor,
            limit: AT_ONCE,
        };
        let page = store.list_runs(query).await?;
        if let Some(one) = page.unreadable.first() {
            return Err(StoreError::Corrupt { run: one.run, why: one.why.clone() });
        }
        for row in page.items {
            let facts = &row.run.facts;
            found.push((facts.id, SessionKey::of(facts)));
        }
        cursor = page.next;
        if cursor.is_none() {
            found.reverse();
            return Ok(found);
        }
    }
}

/// What an event refers to: definitions and large values come before the link that needs them.
async fn export_beside(
    store: &dyn Store,
    tenant: &Tenant,
    run: RunId,
    event: &Event,
    out: &mut (dyn std::io::Write + Send),
) -> Result<(), TransferError> {
    for name in event.blobs() {
        if let Some(text) = store.blob(run, name.digest).await? {
            put(out, &Line::Blob { run, digest: name.digest, text })?;
        }
    }
    if let Some(digest) = definition_of(event)
        && let Some(bytes) = store.definition(tenant.clone(), digest).await?
    {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        put(out, &Line::Definition { digest, text })?;
    }
    Ok(())
}

fn definition_of(event: &Event) -> Option<Digest> {
    if let Event::RunStarted(started) = event {
        Some(started.definition)
    } else if let Event::RunRepinned(repinned) = event {
        Some(repinned.definition)
    } else {
        None
    }
}

async fn export_rest(
    store: &dyn Store,
    tenant: &Tenant,
    out: &mut (dyn std::io::Write + Send),
) -> Result<(), TransferError> {
    for credential in store.list_credentials(tenant.clone()).await? {
        let Credential { prefix, hash, facts, expires_at, revoked_at, .. } = credential;
        put(out, &Line::Credential(CredentialLine { prefix, hash, facts, expires_at, revoked_at }))?;
    }
    let mut after = None;
    loop {
        let query =
            SubscriptionQuery { tenant: tenant.clone(), owner: None, after: after.clone(), limit: AT_ONCE };
        let page = store.list_subscriptions(query).await?;
        let Some(last) = page.last() else { break };
        after = Some(last.id.clone());
        for Subscription { id, scope, owner, wants, is_active, facts, tenant: _ } in page {
            let (run, agent) = match scope {
                Scope::Tenant => (None, None),
                Scope::Agent(agent) => (None, Some(agent)),
                Scope::Run(run) => (Some(run), None),
            };
            let line = SubscriptionLine { id, run, agent, wants, is_active, facts, owner };
            put(out, &Line::Subscription(line))?;
        }
    }
    let mut after = 0;
    loop {
        let entries = store.audit_entries(tenant.clone(), after, AT_ONCE).await?;
        let Some(last) = entries.last() else { return Ok(()) };
        after = last.no;
        for entry in entries {
            put(out, &Line::Audit { at: entry.at, entry: entry.entry })?;
        }
    }
}

fn link_line(link: Link) -> Result<LinkLine, StoreError> {
    let Header { run, first, count, at, actor } = link.header;
    let Contents::Whole { salt, payload } = link.contents else {
        return Err(StoreError::Corrupt { run, why: "its contents were erased".into() });
    };
    let payload = String::from_utf8(payload)
        .map_err(|error| StoreError::Corrupt { run, why: format!("its events are not UTF-8: {error}") })?;
    let salt = standfast_core::base32::encode(&salt);
    Ok(LinkLine { run, first, count, at, actor, hash: link.hash, salt, payload })
}

fn put(out: &mut (dyn std::io::Write + Send), line: &Line) -> Result<(), std::io::Error> {
    serde_json::to_writer(&mut *out, line)?;
    out.write_all(b"\n")
}

/// What an import does with what is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Nothing may be there.
    Empty,
    /// Runs are added; one that is there already is an error.
    Existing,
}

/// Who may see an open hold, by the agent of its run and its owner.
pub type Audiences<'a> = dyn Fn(&Run) -> Vec<AudienceMember> + Send + Sync + 'a;

/// Reads lines into a store: every link is checked against the chain before it is written, and every run against its
/// head after. `progress` hears how many runs are done.
pub async fn import(
    store: &dyn Store,
    lines: &mut (dyn std::io::BufRead + Send),
    into: Target,
    audiences: &Audiences<'_>,
    progress: &mut (dyn FnMut(u64) + Send),
) -> Result<TransferCounts, TransferError> {
    let mut import = Import {
        store,
        audiences,
        tenant: None,
        moved: TransferCounts::default(),
        under_way: None,
        beside: Vec::new(),
        blobs: BTreeMap::new(),
    };
    let mut text = String::new();
    let mut no = 0;
    loop {
        text.clear();
        no += 1;
        if lines.read_line(&mut text)? == 0 {
            return Err(bad(no, "the export is truncated: its last line, with the totals, is missing"));
        }
        let line: Line = serde_json::from_str(&text).map_err(|error| bad(no, error))?;
        if let Line::End(said) = &line {
            return if *said == import.moved {
                Ok(import.moved)
            } else {
                Err(bad(no, format!("the export announces {said}, but {} came", import.moved)))
            };
        }
        if matches!(line, Line::Standfast { .. }) != (no == 1) {
            return Err(bad(
                no,
                "this is not an export: the first line, and only the first, must be its header",
            ));
        }
        import.take(no, line, into).await?;
        if import.under_way.is_none() {
            progress(import.moved.runs);
        }
    }
}

fn bad(line: u64, why: impl ToString) -> TransferError {
    TransferError::Bad { line, why: why.to_string() }
}

struct Import<'a> {
    store: &'a dyn Store,
    audiences: &'a Audiences<'a>,
    tenant: Option<Tenant>,
    moved: TransferCounts,
    /// The run whose links are coming.
    under_way: Option<RunInProgress>,
    /// What the next link needs.
    beside: Vec<SideWrite>,
    /// The large values of the run so far.
    blobs: BTreeMap<Digest, String>,
}

struct RunInProgress {
    run: Run,
    head: Digest,
}

impl Import<'_> {
    async fn take(&mut self, no: u64, line: Line, into: Target) -> Result<(), TransferError> {
        match line {
            Line::Standfast { format, tenant } => {
                if format != FORMAT {
                    return Err(bad(
                        no,
                        format!("these lines have format {format}; this program knows {FORMAT}"),
                    ));
                }
                let query = RunQuery {
                    tenant: tenant.clone(),
                    filter: RunFilter::All,
                    phases: Vec::new(),
                    since: None,
                    cursor: None,
                    limit: 1,
                };
                let found = self.store.list_runs(query).await?;
                if into == Target::Empty && !(found.items.is_empty() && found.unreadable.is_empty()) {
                    return Err(TransferError::NotEmpty);
                }
                self.tenant = Some(tenant);
            }
            Line::Definition { digest, text } => {
                self.beside.push(SideWrite::Definition { digest, bytes: text.into_bytes().into() });
            }
            Line::Blob { digest, text, .. } => {
                if digest::of_bytes(text.as_bytes()) != digest {
                    return Err(bad(no, "the value is not the one that its digest names"));
                }
                self.blobs.insert(digest, text);
            }
            Line::Link(line) => self.link(no, line).await?,
            Line::Run { id, seq, head } => {
                let Some(done) = self.under_way.take() else { return Err(bad(no, "this run has no links")) };
                if done.run.facts.id != id || done.run.state.seq != seq || done.head != head {
                    return Err(bad(
                        no,
                        format!("run {id} does not match the export: its last link differs"),
                    ));
                }
                self.moved.runs += 1;
                self.blobs.clear();
            }
            Line::Session { agent, session, owner, metadata, closed, updated_at } => {
                let Some(tenant) = self.tenant.clone() else { return Err(bad(no, "no tenant")) };
                let before = self.conversation(tenant, agent, session, owner).await?;
                let Some(before) = before else { return Err(bad(no, "this session has no runs")) };
                let key = before.key;
                let change = SessionChange::Metadata { before: before.metadata, after: metadata };
                self.store.change_session(key.clone(), change, updated_at).await?;
                if closed {
                    self.store.change_session(key, SessionChange::Close, updated_at).await?;
                }
                self.moved.sessions += 1;
            }
            Line::Credential(_) | Line::Subscription(_) | Line::Audit { .. } => self.rest(no, line).await?,
            Line::End(_) => {}
        }
        Ok(())
    }

    async fn link(&mut self, no: u64, line: LinkLine) -> Result<(), TransferError> {
        let salt = standfast_core::base32::decode(&line.salt).ok_or_else(|| bad(no, "invalid salt"))?;
        let LinkLine { run, first, count, at, actor, hash, payload, .. } = line;
        let link = Link {
            header: Header { run, first, count, at, actor },
            contents: Contents::Whole { salt, payload: payload.into_bytes() },
            hash,
        };
        let under_way = self.under_way.take().filter(|known| known.run.facts.id == run);
        let (head, seq) =
            under_way.as_ref().map_or((FIRST_PREVIOUS, Seq(0)), |known| (known.head, known.run.state.seq));
        link.verify(head, seq.plus(1)).map_err(|wrong| bad(no, wrong))?;
        let mut events = link.events().map_err(|wrong| bad(no, wrong))?;
        let mut puts = std::mem::take(&mut self.beside);
        for envelope in &mut events {
            for name in envelope.event.blobs() {
                let missing = || bad(no, format!("the value {} is missing", name.digest));
                let text = self.blobs.get(&name.digest).ok_or_else(missing)?;
                envelope.event.fill(&name, text).map_err(|wrong| bad(no, wrong))?;
                puts.push(SideWrite::Blob(standfast_core::body::Blob { name, text: text.clone() }));
            }
        }
        let before = under_way.map(|known| known.run);
        let after = folded(run, before.as_ref(), &events)
            .ok_or_else(|| bad(no, "a run must begin with run.started"))?;
        if self.tenant.as_ref() != Some(&after.facts.tenant) {
            return Err(bad(no, "this run belongs to another tenant"));
        }
        let named = (self.audiences)(&after);
        puts.extend(audiences(run, &events, &HoldAudience { owner: None, named }));
        puts.extend(claim_puts(&after, &events));
        let batch = Batch {
            expected: ExpectedHead { seq, head },
            row: project::run_row(after.clone(), link.hash),
            holds: project::hold_changes(before.as_ref(), &events, &after),
            link,
            lease: LeaseChange::Release,
            guards: Vec::new(),
            puts,
            tells: 0,
        };
        self.store.append(vec![batch]).await?;
        self.moved.links += 1;
        self.under_way = Some(RunInProgress { run: after, head: hash });
        Ok(())
    }

    /// A conversation that the runs before it have begun. Without an owner it is the one that was begun first.
    async fn conversation(
        &self,
        tenant: Tenant,
        agent: AgentName,
        session: SessionId,
        owner: Option<UserId>,
    ) -> Result<Option<SessionRow>, StoreError> {
        if let Some(owner) = owner {
            return self.store.session(SessionKey { tenant, agent, owner, session }).await;
        }
        let (mut first, mut cursor) = (None, None);
        loop {
            let (tenant, agent, session) = (tenant.clone(), Some(agent.clone()), Some(session.clone()));
            let query = SessionQuery { tenant, owner: None, agent, session, cursor, limit: AT_ONCE };
            let page = self.store.list_sessions(query).await?;
            first = page.items.into_iter().next_back().or(first);
            cursor = page.next;
            if cursor.is_none() {
                return Ok(first);
            }
        }
    }

    async fn rest(&self, no: u64, line: Line) -> Result<(), TransferError> {
        let Some(tenant) = self.tenant.clone() else { return Err(bad(no, "no tenant")) };
        match line {
            Line::Credential(CredentialLine { prefix, hash, facts, expires_at, revoked_at }) => {
                let credential = Credential { tenant, prefix, hash, facts, expires_at, revoked_at };
                self.store.put_credential(credential).await?;
            }
            Line::Subscription(SubscriptionLine { id, run, agent, wants, is_active, facts, owner }) => {
                let scope = match (run, agent) {
                    (Some(run), _) => Scope::Run(run),
                    (None, Some(agent)) => Scope::Agent(agent),
                    (None, None) => Scope::Tenant,
                };
                self.store
                    .put_subscription(Subscription { tenant, id, scope, owner, wants, is_active, facts })
                    .await?;
            }
            // What it says of rows is about those of the other database; the rows of this one have entries of their own.
            Line::Audit { entry, .. } if RowEntry::read(&entry).is_some() => {}
            Line::Audit { at, entry } => self.store.put_audit(tenant, at, entry).await?,
            Line::Standfast { .. }
            | Line::Definition { .. }
            | Line::Session { .. }
            | Line::Link(_)
            | Line::Blob { .. }
            | Line::Run { .. }
            | Line::End(_) => {}
        }
        Ok(())
    }
}

fn folded(id: RunId, before: Option<&Run>, events: &[Envelope]) -> Option<Run> {
    match before {
        Some(run) => {
            let mut run = run.clone();
            events.iter().for_each(|envelope| apply::apply(&mut run, envelope));
            Some(run)
        }
        None => apply::fold(id, events),
    }
}
