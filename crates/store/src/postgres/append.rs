//! Writing a group of appends: one transaction, one round trip or two.
//!
//! Where everything that can refuse an append is remembered, the group is judged on that and sent at once, behind a
//! statement that fails unless it is still so. Otherwise the first trip locks and reads everything that can refuse an
//! append; the second writes the result of the group, one statement for each table over arrays, and commits. An append
//! that is refused takes no other with it. Several appends of one run write its row once and all their links.

use standfast_core::body::Blob;
use standfast_core::digest::Digest;
use standfast_core::hold::HoldKind;
use standfast_core::id::{HoldId, RunId, Seq, Shard, tenant_tag};
use standfast_core::link::{Contents, Link};
use standfast_core::project::{HoldChange, HoldRow};
use standfast_core::time::Timestamp;
use tokio_postgres::types::ToSql;

use super::connect::{Connection, PendingRows, Rows, pipeline};
use super::failure::Failure;
use super::group::{EncodedBatch, GroupReads, Picture, RunPosition, TenantKey};
use super::known_rows::KnownRows;
use super::numbers::Numbers;
use super::sql;
use super::types::{self, Bytes16, signed};
use crate::batch::{Batch, Notice, SideWrite};
use crate::columns::{self, Record, deadline};
use crate::error::StoreError;
use crate::observer::Effort;
use crate::query::SessionKey;

/// What became of each append of a group, and where something changed.
pub(super) struct GroupResult {
    pub(super) answers: Vec<Result<(), StoreError>>,
    pub(super) shards: Vec<Shard>,
    /// Whether there is somebody to notify.
    pub(super) has_notices: bool,
}

/// Why a group was not written, and whether its end had been sent.
pub(super) struct GroupFailure {
    pub(super) failure: Failure,
    pub(super) is_sent: bool,
}

/// Makes columns of rows: one array for each expression.
macro_rules! arrays {
    ($rows:expr => |$row:ident| $($column:expr),+ $(,)?) => {{
        let rows = &$rows;
        let columns: Columns<'_> =
            vec![$(Box::new(rows.iter().map(|$row| $column).collect::<Vec<_>>())),+];
        (rows.is_empty(), columns)
    }};
}

/// What writing a group needs beside a connection.
pub(super) struct GroupWrite<'a> {
    pub(super) numbers: &'a Numbers,
    pub(super) known: &'a KnownRows,
}

/// Writes a group. An append that has a run twice is refused; appends of one run follow each other.
pub(super) async fn write(
    connection: &Connection,
    writing: &GroupWrite<'_>,
    group: &[&[EncodedBatch]],
) -> Result<GroupResult, GroupFailure> {
    if let Some(remembered) = writing.known.picture(group)
        && let Some(result) = write_at_once(connection, writing, group, remembered).await?
    {
        return Ok(result);
    }
    // Until it is written nobody knows what its runs are like.
    writing.known.forget(group);
    let before = |failure: Failure| GroupFailure { failure, is_sent: false };
    let wanted = GroupReads::of(group.iter().flat_map(|one| one.iter().map(|encoded| &encoded.batch)));
    let mut picture = look(connection, &wanted).await.map_err(before)?;
    writing.known.saw(&picture);
    let answers: Vec<Result<(), StoreError>> = group.iter().map(|one| picture.take(one)).collect();
    let accepted = group.iter().zip(&answers).filter(|(_, answer)| answer.is_ok());
    let batches: Vec<&EncodedBatch> = accepted.flat_map(|(one, _)| one.iter()).collect();
    let runs = AppendedRun::of(&batches, &picture, writing.numbers);
    let tables = Tables::of(&batches, &runs, &picture, writing).map_err(|error| before(error.into()))?;
    // If one of them fails, the COMMIT behind it undoes the rest.
    for answer in send(connection, tables.filled(), TripEnd::Commit).await.map_err(before)? {
        answer.map_err(|error| GroupFailure { failure: error.into(), is_sent: true })?;
    }
    drop(tables);
    Ok(done(writing, picture, &batches, &runs, answers))
}

/// Sends a group that was judged on what is remembered, in one trip. None when something is not as it is remembered:
/// then nothing was written.
async fn write_at_once(
    connection: &Connection,
    writing: &GroupWrite<'_>,
    group: &[&[EncodedBatch]],
    mut picture: Picture,
) -> Result<Option<GroupResult>, GroupFailure> {
    let before = |failure: Failure| GroupFailure { failure, is_sent: false };
    let expected: Vec<(RunId, RunPosition)> =
        picture.places.iter().map(|(run, place)| (*run, place.clone())).collect();
    let batches: Vec<&EncodedBatch> = group.iter().copied().flatten().collect();
    // What is refused by what is remembered is asked of the database before it is answered.
    if group.iter().any(|one| picture.take(one).is_err()) {
        return Ok(None);
    }
    let runs = AppendedRun::of(&batches, &picture, writing.numbers);
    let tables = Tables::of(&batches, &runs, &picture, writing).map_err(|error| before(error.into()))?;
    let wanted = GroupReads::of(batches.iter().map(|encoded| &encoded.batch));
    let (topic_tenants, topics): (Vec<&str>, Vec<&str>) =
        wanted.topics.iter().map(|(tenant, topic)| (tenant.as_str(), topic.as_str())).unzip();
    let (_, unchanged) = arrays!(expected => |one| Bytes16::from(one.0), signed(one.1.seq.0), one.1.head.0.to_vec(),
        one.1.lease.map(|lease| Bytes16(lease.node.0)), one.1.lease.map(|lease| lease.until.0),
        one.1.wake_at.map(|at| at.0), one.1.due_at.map(|at| at.0));
    let mut writes: Writes<'_> = vec![
        (sql::RUNS_UNCHANGED, unchanged.iter().map(|column| &**column as &(dyn ToSql + Sync)).collect()),
        (sql::NOBODY_LISTENS, vec![&topic_tenants, &topics]),
    ];
    writes.extend(tables.filled());
    let answers = send(connection, writes, TripEnd::BeginAndCommit).await.map_err(before)?;
    let last = answers.len().saturating_sub(1);
    for (at, answer) in answers.into_iter().enumerate() {
        let Err(error) = answer else { continue };
        let failure = Failure::from(error);
        if at == last || failure.ends_the_connection() {
            return Err(GroupFailure { failure, is_sent: true });
        }
        // The COMMIT behind it has undone everything.
        return Ok(None);
    }
    drop(tables);
    let answers = group.iter().map(|_| Ok(())).collect();
    Ok(Some(done(writing, picture, &batches, &runs, answers)))
}

/// A group is written.
fn done(
    writing: &GroupWrite<'_>,
    picture: Picture,
    batches: &[&EncodedBatch],
    runs: &[AppendedRun<'_>],
    answers: Vec<Result<(), StoreError>>,
) -> GroupResult {
    let shards = picture.places.values().filter(|place| place.is_written || place.is_woken);
    let shards = shards.map(|place| place.shard).collect();
    let numbers: Vec<(RunId, i64)> = runs.iter().map(|run| (run.encoded.batch.run(), run.no)).collect();
    let is_told = |put: &SideWrite| matches!(put, SideWrite::Notice(_));
    let has_notices = batches.iter().any(|encoded| {
        encoded.batch.puts.iter().any(is_told) || !picture.wanted_notices(&encoded.batch).is_empty()
    });
    writing.known.remember(picture, batches, &numbers);
    GroupResult { answers, shards, has_notices }
}

/// Statements with their parameters, in the order in which they are sent.
type Writes<'a> = Vec<(&'static str, Vec<&'a (dyn ToSql + Sync)>)>;

/// What stands around the statements of a trip.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TripEnd {
    Commit,
    BeginAndCommit,
}

/// Sends statements and the end of their transaction in one trip. Fails only before anything was sent.
async fn send(connection: &Connection, writes: Writes<'_>, ending: TripEnd) -> Result<Vec<Rows>, Failure> {
    let mut statements = Vec::with_capacity(writes.len());
    for (sql, _) in &writes {
        statements.push(connection.statement(sql).await?);
    }
    connection.count_trip(Effort::WriteStatement, writes.len());
    let client = &connection.client;
    let mut sent: Vec<PendingRows<'_>> = Vec::with_capacity(writes.len() + 2);
    if ending == TripEnd::BeginAndCommit {
        sent.push(Box::pin(async { client.batch_execute("BEGIN").await.map(|()| Vec::new()) }));
    }
    for (statement, (_, params)) in statements.iter().zip(&writes) {
        sent.push(Box::pin(client.query(statement, params)));
    }
    sent.push(Box::pin(async { client.batch_execute("COMMIT").await.map(|()| Vec::new()) }));
    Ok(pipeline(sent).await)
}

/// Begins the transaction, locks, reads.
async fn look(connection: &Connection, wanted: &GroupReads) -> Result<Picture, Failure> {
    let (key_tenants, keys) = columns_of(&wanted.guarded_keys);
    let (counter_tenants, counters) = columns_of(&wanted.counters);
    let [tenants, agents, sessions, owners] = session_columns(&wanted.sessions);
    let runs_params: [&(dyn ToSql + Sync); 1] = [&wanted.runs];
    let keys_params: [&(dyn ToSql + Sync); 2] = [&key_tenants, &keys];
    let counters_params: [&(dyn ToSql + Sync); 2] = [&counter_tenants, &counters];
    let sessions_params: [&(dyn ToSql + Sync); 4] = [&tenants, &agents, &sessions, &owners];
    let (topic_tenants, topics): (Vec<&str>, Vec<&str>) =
        wanted.topics.iter().map(|(tenant, topic)| (tenant.as_str(), topic.as_str())).unzip();
    let topics_params: [&(dyn ToSql + Sync); 2] = [&topic_tenants, &topics];
    let mut reads: Vec<(&'static str, &[&(dyn ToSql + Sync)])> = vec![(sql::RUNS_LOCK, &runs_params)];
    if !keys.is_empty() {
        reads.extend([(sql::KEYS_RESERVE, &keys_params[..]), (sql::KEYS_OF, &keys_params[..])]);
    }
    if !counters.is_empty() {
        reads.extend([
            (sql::COUNTERS_RESERVE, &counters_params[..]),
            (sql::COUNTERS_LOCK, &counters_params[..]),
        ]);
    }
    if !sessions.is_empty() {
        reads.push((sql::SESSIONS_LOCK, &sessions_params));
    }
    reads.push((sql::LISTENERS, &topics_params));
    let mut statements = Vec::with_capacity(reads.len());
    for (sql, _) in &reads {
        statements.push(connection.statement(sql).await?);
    }
    let client = &connection.client;
    let mut sent: Vec<PendingRows<'_>> = Vec::with_capacity(reads.len() + 1);
    sent.push(Box::pin(async { client.batch_execute("BEGIN").await.map(|()| Vec::new()) }));
    for (statement, (_, params)) in statements.iter().zip(&reads) {
        sent.push(Box::pin(client.query(statement, params)));
    }
    connection.count_trip(Effort::WriteStatement, reads.len());
    let mut answers = Vec::with_capacity(sent.len());
    for answer in pipeline(sent).await {
        answers.push(answer?);
    }
    let mut picture = Picture::default();
    for ((sql, _), rows) in reads.iter().zip(answers.iter().skip(1)) {
        for row in rows {
            match *sql {
                sql::RUNS_LOCK => picture.saw_run(row)?,
                sql::KEYS_RESERVE => picture.reserved_key(row)?,
                sql::KEYS_OF => picture.saw_key(row)?,
                sql::COUNTERS_LOCK => picture.saw_counter(row)?,
                sql::SESSIONS_LOCK => picture.saw_session(row, &wanted.sessions)?,
                sql::LISTENERS => picture.saw_listener(row)?,
                _ => {}
            }
        }
    }
    Ok(picture)
}

fn columns_of(names: &[TenantKey]) -> (Vec<&str>, Vec<&[u8]>) {
    names.iter().map(|(tenant, name)| (tenant.as_str(), name.as_slice())).unzip()
}

fn session_columns(sessions: &[SessionKey]) -> [Vec<&str>; 4] {
    [
        sessions.iter().map(|key| key.tenant.as_str()).collect(),
        sessions.iter().map(|key| key.agent.as_str()).collect(),
        sessions.iter().map(|key| key.session.as_str()).collect(),
        sessions.iter().map(|key| key.owner.as_str()).collect(),
    ]
}

/// The columns of one statement, each as long as the others.
type Columns<'a> = Vec<Box<dyn ToSql + Sync + Send + 'a>>;

/// What a group writes, by statement, in the order in which it is written.
#[derive(Default)]
struct Tables<'a> {
    writes: Vec<(&'static str, Columns<'a>)>,
}

impl<'a> Tables<'a> {
    fn of(
        batches: &[&'a EncodedBatch],
        runs: &[AppendedRun<'a>],
        picture: &'a Picture,
        writing: &GroupWrite<'_>,
    ) -> Result<Tables<'a>, StoreError> {
        let mut tables = Tables::default();
        tables.runs(runs, writing.known);
        tables.links(batches)?;
        tables.due(runs, picture);
        tables.holds(batches, writing.numbers);
        tables.puts(batches, picture, writing);
        tables.guards(picture);
        Ok(tables)
    }

    fn add(&mut self, sql: &'static str, (is_empty, columns): (bool, Columns<'a>)) {
        if !is_empty {
            self.writes.push((sql, columns));
        }
    }

    fn filled(&self) -> Vec<(&'static str, Vec<&(dyn ToSql + Sync)>)> {
        self.writes
            .iter()
            .map(|(sql, columns)| {
                (*sql, columns.iter().map(|column| &**column as &(dyn ToSql + Sync)).collect())
            })
            .collect()
    }

    fn runs(&mut self, runs: &[AppendedRun<'a>], known: &KnownRows) {
        let new: Vec<&AppendedRun<'a>> = runs.iter().filter(|run| run.is_new).collect();
        let is_unknown = |run: &&&AppendedRun<'a>| !known.has_tenant(run.facts().tenant.as_str());
        let of_new_tenants: Vec<&AppendedRun<'a>> = new.iter().filter(is_unknown).copied().collect();
        self.add(
            sql::TENANTS_ADD,
            arrays!(of_new_tenants => |run| run.facts().tenant.as_str(),
                i64::from(tenant_tag(&run.facts().tenant)), run.facts().started_at.0),
        );
        self.add(
            sql::SESSIONS_ADD,
            arrays!(new => |run| run.facts().tenant.as_str(), run.facts().agent.as_str(),
                run.facts().session.as_str(), run.facts().owner.as_str(), run.facts().started_at.0, run.no),
        );
        let (is_empty, mut columns) = arrays!(new => |run|
            run.id(), run.no, run.facts().tenant.as_str(), run.facts().agent.as_str(), run.facts().session.as_str(),
            run.facts().owner.as_str(), small(columns::driver_number(run.facts().driver)), run.facts().started_at.0,
            run.facts().parent.as_ref().map(columns::json),
            run.facts().inbox.as_ref().map(|place| place.inbox.as_str()),
            run.facts().inbox.as_ref().map(columns::inbox_facts),
            run.facts().inbox.as_ref().map(|place| i16::from(place.priority)),
            run.seq(), run.state().at.0, run.head(), run.definition(), run.phase(), run.lease_node(),
            run.lease_until(), run.wake_at, run.wants_at(), run.due_at, run.encoded.state.as_str());
        columns.push(Box::new(types::fold()));
        self.add(sql::RUNS_ADD, (is_empty, columns));
        let old: Vec<&AppendedRun<'a>> = runs.iter().filter(|run| !run.is_new).collect();
        let (is_empty, mut columns) = arrays!(old => |run|
            run.id(), run.seq(), run.state().at.0, run.head(), run.definition(), run.phase(), run.lease_node(),
            run.lease_until(), run.wake_at, run.wants_at(), run.due_at, run.encoded.state.as_str());
        columns.push(Box::new(types::fold()));
        self.add(sql::RUNS_MOVE, (is_empty, columns));
    }

    fn links(&mut self, batches: &[&'a EncodedBatch]) -> Result<(), StoreError> {
        let mut links = Vec::with_capacity(batches.len());
        for EncodedBatch { batch, .. } in batches.iter().copied() {
            let Contents::Whole { salt, payload } = &batch.link.contents else {
                return Err(StoreError::unavailable("an append without contents"));
            };
            let payload = match std::str::from_utf8(payload) {
                Ok(text) => text,
                Err(error) => unreachable!("JSON is UTF-8: {error}"),
            };
            links.push(NewLink { link: &batch.link, salt: Bytes16(*salt), payload });
        }
        let columns = arrays!(links => |one|
            Bytes16::from(one.link.header.run), signed(one.link.header.first.0),
            i32::try_from(one.link.header.count).unwrap_or(i32::MAX), one.link.header.at.0,
            one.link.header.actor.to_string(), one.link.hash.0.to_vec(), one.salt, one.payload);
        self.add(sql::LINKS_ADD, columns);
        Ok(())
    }

    /// Work lists: of the runs that moved, and of those that were only woken.
    fn due(&mut self, runs: &[AppendedRun<'a>], picture: &'a Picture) {
        let woken: Vec<_> =
            picture.places.iter().filter(|(_, place)| place.is_woken && !place.is_written).collect();
        self.add(
            sql::RUNS_WAKE,
            arrays!(woken => |one| Bytes16::from(*one.0), one.1.wake_at.map(|at| at.0),
                one.1.due_at.map(|at| at.0)),
        );
        let number =
            |run: &RunId| runs.iter().find(|moved| moved.encoded.batch.run() == *run).map(|moved| moved.no);
        let changed = picture.places.iter().filter(|(_, place)| place.due_at != place.due_before);
        let changed: Vec<DueRow<'_>> = changed
            .map(|(run, place)| {
                let no = place.no.or_else(|| number(run)).unwrap_or_default();
                DueRow { run: *run, place, no, at: place.due_at.map(|at| at.0) }
            })
            .collect();
        let (set, cleared): (Vec<DueRow<'_>>, Vec<DueRow<'_>>) =
            changed.into_iter().partition(|due| due.at.is_some());
        self.add(
            sql::DUE_SET,
            arrays!(set => |due| Bytes16::from(due.run), due.no, due.place.tenant.as_str(),
                due.place.agent.as_str(), i16::from(due.place.shard.0), due.at),
        );
        self.add(sql::DUE_CLEAR, arrays!(cleared => |due| Bytes16::from(due.run)));
        let inboxes = runs.iter().filter(|run| run.facts().inbox.is_some());
        let (open, shut): (Vec<&AppendedRun<'a>>, Vec<&AppendedRun<'a>>) =
            inboxes.partition(|run| run.encoded.batch.row.claimable_at.is_some());
        self.add(
            sql::CLAIMABLE_SET,
            arrays!(open => |run| run.id(), run.facts().tenant.as_str(),
                run.facts().inbox.as_ref().map(|place| place.inbox.as_str()),
                run.facts().inbox.as_ref().map(|place| i16::from(place.priority)), run.no,
                run.encoded.batch.row.claimable_at.map(|at| at.0)),
        );
        self.add(sql::CLAIMABLE_CLEAR, arrays!(shut => |run| run.id()));
    }

    fn holds(&mut self, batches: &[&'a EncodedBatch], numbers: &Numbers) {
        let (mut opened, mut updated, mut closed) = (Vec::new(), Vec::new(), Vec::new());
        for EncodedBatch { batch, .. } in batches.iter().copied() {
            for change in &batch.holds {
                match change {
                    HoldChange::Open(row) => {
                        let no = numbers.next(row.opened_at, low_bytes(&row.id.key.secret.0));
                        opened.push(NewHold { no, row, tenant: batch.tenant().as_str() });
                    }
                    // What changes of an open hold stands in the fold of its run, but for what lists are in order of.
                    HoldChange::Update(row) => updated.push(row),
                    HoldChange::Close(row) => closed.push(row),
                }
            }
        }
        self.add(
            sql::HOLDS_ADD,
            arrays!(opened => |hold| hold.no, Bytes16::from(hold.row.id.run), i64::from(hold.row.id.key.call.0),
                Bytes16(hold.row.id.key.secret.0), hold.tenant, hold.row.agent.as_str(),
                hold.row.tool.as_ref().map(|tool| tool.as_str()), small(columns::kind_number(hold.row.kind)),
                hold.row.inbox.as_ref().map(|inbox| inbox.as_str()), deadline(hold.row)),
        );
        self.add(
            sql::HOLDS_DEADLINE,
            arrays!(updated => |row| Bytes16::from(row.id.run), i64::from(row.id.key.call.0),
                Bytes16(row.id.key.secret.0), deadline(row)),
        );
        // Of several changes of one hold the last counts.
        let mut external: Vec<&HoldRow> = Vec::new();
        for row in updated.iter().copied().filter(|row| row.kind == HoldKind::External) {
            external.retain(|before| before.id != row.id);
            external.push(row);
        }
        self.add(
            sql::EXTERNAL_SET,
            arrays!(external => |row| Bytes16::from(row.id.run), i64::from(row.id.key.call.0),
                Bytes16(row.id.key.secret.0), columns::external_status(row)),
        );
        self.add(
            sql::HOLDS_CLOSE,
            arrays!(closed => |row| Bytes16::from(row.id.run), i64::from(row.id.key.call.0),
                Bytes16(row.id.key.secret.0), columns::json(&Record::of(row))),
        );
    }

    fn puts(&mut self, batches: &[&'a EncodedBatch], picture: &Picture, writing: &GroupWrite<'_>) {
        let mut audience: Vec<(HoldId, &[u8])> = Vec::new();
        let (mut blobs, mut definitions) = (Vec::new(), Vec::new());
        let mut notices: Vec<NewNotice<'a>> = Vec::new();
        for EncodedBatch { batch, .. } in batches.iter().copied() {
            let mut tell = |notice: Notice| {
                let known = notices.iter_mut().find(|new| {
                    new.batch.run() == batch.run() && new.notice.subscription == notice.subscription
                });
                if let Some(known) = known {
                    known.latest = batch.link.header.first;
                } else {
                    let no = writing.numbers.next(batch.link.header.at, low_bytes(batch.run().bytes()));
                    notices.push(NewNotice { no, batch, notice, latest: batch.link.header.first });
                }
            };
            picture.wanted_notices(batch).into_iter().for_each(&mut tell);
            for put in &batch.puts {
                match put {
                    SideWrite::Audience { hold, who } => {
                        audience.extend(who.iter().map(|one| (*hold, one.0.as_bytes())));
                    }
                    SideWrite::Blob(Blob { name, text }) => {
                        blobs.push((batch.run(), name.digest.0.to_vec(), text.as_bytes()));
                    }
                    SideWrite::Definition { digest, .. }
                        if writing.known.has_definition(batch.tenant().as_str(), *digest) => {}
                    SideWrite::Definition { digest, bytes } => {
                        definitions.push((batch.tenant().as_str(), digest.0.to_vec(), &**bytes));
                    }
                    SideWrite::Notice(notice) => tell(notice.clone()),
                    // Part of the picture.
                    SideWrite::Key { .. } | SideWrite::Wake { .. } => {}
                }
            }
        }
        self.add(
            sql::AUDIENCE_ADD,
            arrays!(audience => |one| Bytes16::from(one.0.run), i64::from(one.0.key.call.0),
                Bytes16(one.0.key.secret.0), one.1),
        );
        self.add(sql::BLOBS_ADD, arrays!(blobs => |one| Bytes16::from(one.0), one.1.clone(), one.2));
        self.add(sql::DEFINITIONS_ADD, arrays!(definitions => |one| one.0, one.1.clone(), one.2));
        self.add(
            sql::NOTICES_ADD,
            arrays!(notices => |new| new.no, i16::from(new.batch.run().shard(new.batch.tenant()).0),
                new.notice.due_at.0, new.notice.subscription.clone().into_bytes(), Bytes16::from(new.batch.run()),
                signed(new.notice.from.0), signed(new.latest.0), new.notice.owner.clone()),
        );
    }

    fn guards(&mut self, picture: &'a Picture) {
        let used = picture.keys.iter().filter_map(|(name, used)| {
            let (request, seq, expires_at) = used.written?;
            Some(UsedKey { name, run: used.run, request, seq, expires_at })
        });
        let used: Vec<UsedKey<'_>> = used.collect();
        self.add(
            sql::KEYS_SET,
            arrays!(used => |key| key.name.0.as_str(), key.name.1.as_slice(), key.request.0.to_vec(),
                Bytes16::from(key.run), signed(key.seq.0), key.expires_at.0),
        );
        let unused: Vec<_> =
            picture.reserved.iter().filter(|name| !picture.keys.contains_key(*name)).collect();
        self.add(sql::KEYS_UNRESERVE, arrays!(unused => |name| name.0.as_str(), name.1.as_slice()));
        let counted = picture.counters.iter().filter(|(_, (_, is_changed))| *is_changed);
        let counted: Vec<_> = counted.collect();
        self.add(sql::COUNTERS_SET, arrays!(counted => |one| one.0.0.as_str(), one.0.1.as_slice(), one.1.0));
    }
}

struct NewLink<'a> {
    link: &'a Link,
    salt: Bytes16,
    payload: &'a str,
}

struct DueRow<'a> {
    run: RunId,
    place: &'a RunPosition,
    no: i64,
    at: Option<i64>,
}

struct NewHold<'a> {
    no: i64,
    row: &'a HoldRow,
    tenant: &'a str,
}

struct UsedKey<'a> {
    name: &'a TenantKey,
    run: RunId,
    request: Digest,
    seq: Seq,
    expires_at: Timestamp,
}

struct NewNotice<'a> {
    no: i64,
    batch: &'a Batch,
    notice: Notice,
    latest: Seq,
}

/// A run after its append.
struct AppendedRun<'a> {
    encoded: &'a EncodedBatch,
    is_new: bool,
    no: i64,
    lease: Option<crate::query::Lease>,
    wake_at: Option<i64>,
    due_at: Option<i64>,
}

impl<'a> AppendedRun<'a> {
    fn of(batches: &[&'a EncodedBatch], picture: &Picture, numbers: &Numbers) -> Vec<AppendedRun<'a>> {
        // Of several appends of one run the last has its row.
        let is_last = |(at, encoded): &(usize, &&'a EncodedBatch)| {
            let run = encoded.batch.run();
            !batches.iter().skip(at + 1).any(|later| later.batch.run() == run)
        };
        let moved = |encoded: &&'a EncodedBatch| {
            let batch = &encoded.batch;
            let place = picture.places.get(&batch.run())?;
            let fresh = || numbers.next(batch.row.run.facts.started_at, low_bytes(batch.run().bytes()));
            Some(AppendedRun {
                encoded,
                is_new: place.no.is_none(),
                no: place.no.unwrap_or_else(fresh),
                lease: place.lease,
                wake_at: place.wake_at.map(|at| at.0),
                due_at: place.due_at.map(|at| at.0),
            })
        };
        batches.iter().enumerate().filter(is_last).map(|(_, encoded)| encoded).filter_map(moved).collect()
    }

    fn id(&self) -> Bytes16 {
        self.encoded.batch.run().into()
    }

    fn facts(&self) -> &'a standfast_core::run::Facts {
        &self.encoded.batch.row.run.facts
    }

    fn state(&self) -> &'a standfast_core::run::State {
        &self.encoded.batch.row.run.state
    }

    fn seq(&self) -> i64 {
        signed(self.state().seq.0)
    }

    fn head(&self) -> Vec<u8> {
        self.encoded.batch.row.head.0.to_vec()
    }

    fn definition(&self) -> Vec<u8> {
        self.state().definition.0.to_vec()
    }

    fn phase(&self) -> i16 {
        i16::from(self.encoded.batch.row.phase as u8)
    }

    fn lease_node(&self) -> Option<Bytes16> {
        self.lease.map(|lease| Bytes16(lease.node.0))
    }

    fn lease_until(&self) -> Option<i64> {
        self.lease.map(|lease| lease.until.0)
    }

    fn wants_at(&self) -> Option<i64> {
        self.encoded.batch.row.due_at.map(|at| at.0)
    }
}

fn small(number: i64) -> i16 {
    i16::try_from(number).unwrap_or(i16::MAX)
}

/// Bytes of an id that are random, wherever it comes from.
fn low_bytes(id: &[u8; 16]) -> [u8; 3] {
    [id[13], id[14], id[15]]
}
