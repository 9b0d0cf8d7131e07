//! Between rows and the core's types.
//!
//! Reading is strict: a row that is not exactly what this store writes is *corrupt*, which quarantines its run and
//! nothing else.

use base64::prelude::{BASE64_STANDARD_NO_PAD, Engine as _};
use rusqlite::{Connection, Row, params};
use standfast_core::actor::Actor;
use standfast_core::apply;
use standfast_core::digest::Digest;
use standfast_core::event::Parent;
use standfast_core::id::{Incarnation, RunId, Seq};
use standfast_core::link::{Contents, Header, Link};
use standfast_core::name::{AgentName, SessionId, Tenant, UserId};
use standfast_core::project::{self, RunRow};
use standfast_core::run::{FOLD_VERSION, Facts, Run, State};
use standfast_core::time::Timestamp;

use super::dense;
use super::names::Texts;
use super::payload_keys::FoundKey;
use super::sealing::{Place, Random, RunKey};
use super::sql;
use crate::columns::{CorruptRow, driver, inbox_place, json, parse};
use crate::error::StoreError;
use crate::query::{Lease, StoredRun};

/// Links are keyed by run number and first event: `number << 20 | seq`.
pub(super) const SEQ_BITS: u32 = 20;

/// The highest sequence that fits into a link's key.
pub(super) const SEQ_MAX: u64 = (1 << SEQ_BITS) - 1;

/// The key of the link that begins with this event.
pub(super) fn link_key(run: i64, first: Seq) -> i64 {
    (run << SEQ_BITS) | i64::try_from(first.0.min(SEQ_MAX)).unwrap_or(0)
}

/// A fold as it is stored: in a dense form, or, what cannot be packed, as the JSON that it is.
#[derive(Debug)]
pub(super) enum StoredFold {
    Packed(Vec<u8>),
    Plain(String),
}

/// What a packed fold begins with.
const FOLD: u8 = 1;
/// The same, of a run that is to be erased: `sql::RUNS_ENDED` looks at it.
const ERASED_FOLD: u8 = 2;
/// What a sealed fold begins with; `sql::RUN_IS_SEALED` and `sql::NEWEST_SEALED` look at it. That of an erased run never is one.
const SEALED_FOLD: u8 = 3;

/// What stands around the text of a sealed payload: JSON, so that what reads payloads as such finds no event in it.
const SEALED_PAYLOAD: [&str; 2] = [r#"[{"sealed":""#, r#""}]"#];

impl StoredFold {
    pub(super) fn of(state: &State) -> StoredFold {
        let text = json(state);
        match dense::pack(if state.erased { ERASED_FOLD } else { FOLD }, &text) {
            Some(packed) => StoredFold::Packed(packed),
            None => StoredFold::Plain(text),
        }
    }

    /// The same, sealed for its place.
    pub(super) fn sealed(self, key: &RunKey, row: &RunRow, random: Random) -> StoredFold {
        let plain = match self {
            StoredFold::Packed(packed) => packed,
            StoredFold::Plain(text) => text.into_bytes(),
        };
        let seq = row.run.state.seq.0.to_be_bytes();
        let place = Place { run: row.run.facts.id, column: FOLD_COLUMN, row: &[&seq, &row.head.0] };
        let mut sealed = vec![SEALED_FOLD];
        sealed.extend(key.seal(place, &plain, random));
        StoredFold::Packed(sealed)
    }

    /// The columns `state` and `packed`.
    pub(super) fn columns(&self) -> (&str, Option<&[u8]>) {
        match self {
            StoredFold::Packed(packed) => ("", Some(packed)),
            StoredFold::Plain(text) => (text, None),
        }
    }

    fn read(row: &Row<'_>) -> Result<StoredFold, CorruptRow> {
        let text: String = row.get(19)?;
        // What an earlier version wrote is read as it was.
        if !text.is_empty() {
            return Ok(StoredFold::Plain(text));
        }
        let packed: Option<Vec<u8>> = row.get(PACKED_COLUMN)?;
        Ok(packed.map_or(StoredFold::Plain(text), StoredFold::Packed))
    }

    fn state(&self) -> Result<State, CorruptRow> {
        match self {
            StoredFold::Packed(packed) if matches!(packed.first(), Some(&(FOLD | ERASED_FOLD))) => {
                parse(&dense::unpack(packed)?)
            }
            StoredFold::Packed(_) => Err(CorruptRow("its packed state begins with an unknown byte".into())),
            StoredFold::Plain(text) => parse(text),
        }
    }

    fn is_sealed(&self) -> bool {
        matches!(self, StoredFold::Packed(packed) if packed.first() == Some(&SEALED_FOLD))
    }

    /// What was sealed, of a run at this event with this hash of its last link.
    fn opened(
        &self,
        key: &FoundKey,
        facts: &Facts,
        seq: u64,
        head: Digest,
    ) -> Result<StoredFold, CorruptRow> {
        let StoredFold::Packed(packed) = self else {
            return Err(CorruptRow("its state is not sealed".into()));
        };
        let key = match key {
            FoundKey::Here(key) if key.tenant() == facts.tenant.as_str() => key,
            FoundKey::Here(_) => return Err(CorruptRow("it was sealed for another tenant".into())),
            FoundKey::Destroyed => {
                return Err(CorruptRow(
                    "its contents were erased: the key that they are sealed with was destroyed".into(),
                ));
            }
            FoundKey::Never => {
                return Err(CorruptRow("it is sealed, and there is no key for it here".into()));
            }
        };
        let row: &[&[u8]] = &[&seq.to_be_bytes(), &head.0];
        let place = Place { run: facts.id, column: FOLD_COLUMN, row };
        let plain = key.open(place, packed.get(1..).unwrap_or_default()).map_err(CorruptRow)?;
        if matches!(plain.first(), Some(&(FOLD | ERASED_FOLD))) {
            return Ok(StoredFold::Packed(plain.to_vec()));
        }
        let text = std::str::from_utf8(&plain).map_err(|_| CorruptRow("its state is no text".into()))?;
        Ok(StoredFold::Plain(text.to_owned()))
    }
}

const FOLD_COLUMN: &str = "runs.packed";
const PAYLOAD_COLUMN: &str = "links.payload";

/// The payload of a link with its salt, sealed for its place, as it stands in the column.
pub(super) fn sealed_payload(
    key: &RunKey,
    link: &Link,
    salt: &[u8; 16],
    payload: &[u8],
    random: Random,
) -> String {
    let first = link.header.first.0.to_be_bytes();
    let place = Place { run: link.header.run, column: PAYLOAD_COLUMN, row: &[&first, &link.hash.0] };
    let sealed = key.seal(place, &[salt.as_slice(), payload].concat(), random);
    let [before, behind] = SEALED_PAYLOAD;
    [before, &BASE64_STANDARD_NO_PAD.encode(sealed), behind].concat()
}

/// A sealed link: opened, or as one whose contents are gone when there is no key for it.
fn opened_link(
    key: &FoundKey,
    header: &Header,
    (hash, commitment): (Digest, Digest),
    payload: &str,
) -> Result<Contents, CorruptRow> {
    let FoundKey::Here(key) = key else { return Ok(Contents::Erased { commitment }) };
    let [before, behind] = SEALED_PAYLOAD;
    let text = payload.strip_prefix(before).and_then(|rest| rest.strip_suffix(behind));
    let sealed = text.and_then(|text| BASE64_STANDARD_NO_PAD.decode(text).ok());
    let sealed = sealed.ok_or_else(|| CorruptRow("a link is neither whole nor erased nor sealed".into()))?;
    let row: &[&[u8]] = &[&header.first.0.to_be_bytes(), &hash.0];
    let place = Place { run: header.run, column: PAYLOAD_COLUMN, row };
    let plain = key.open(place, &sealed).map_err(CorruptRow)?;
    let Some((salt, payload)) = plain.split_first_chunk::<16>() else {
        return Err(CorruptRow("a sealed link has no salt".into()));
    };
    Ok(Contents::Whole { salt: *salt, payload: payload.to_vec() })
}

impl From<rusqlite::Error> for CorruptRow {
    fn from(error: rusqlite::Error) -> CorruptRow {
        CorruptRow(format!("a column cannot be read: {error}"))
    }
}

/// Where the columns of a whole run have the phase; what was quarantined says so in front of it.
pub(super) const PHASE_COLUMN: usize = 21;

/// Where they have the packed fold.
const PACKED_COLUMN: usize = 22;

/// Where a statement about one run has the name of its conversation and the hash of its last link; lists have neither.
const SESSION_COLUMN: usize = 23;
const LAST_HASH_COLUMN: usize = 24;

/// A run as its columns say, before anything is made of them.
pub(super) struct RunColumns {
    pub(super) no: i64,
    pub(super) id: RunId,
    pub(super) tenant: i64,
    pub(super) fold: u32,
    rest: Result<OtherColumns, CorruptRow>,
}

struct OtherColumns {
    agent: i64,
    session: i64,
    owner: i64,
    driver: i64,
    started_at: i64,
    parent: Option<String>,
    inbox: Option<i64>,
    inbox_facts: Option<String>,
    priority: Option<u8>,
    seq: u64,
    at: i64,
    head: Digest,
    definition: i64,
    lease: Option<Lease>,
    fold: StoredFold,
    quarantined: Option<String>,
    session_name: Option<String>,
    last_hash: Option<[u8; 32]>,
}

impl RunColumns {
    /// Reads what identifies the row; everything may be corrupt without stopping a list.
    pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<RunColumns> {
        let (id, fold): (Vec<u8>, i64) = (row.get(1)?, row.get(16)?);
        let rest = match (id.len(), fold) {
            (16, 0..) => OtherColumns::read(row),
            (16, _) => Err(CorruptRow(format!("there is no fold {fold}"))),
            (length, _) => Err(CorruptRow(format!("its id has {length} bytes"))),
        };
        let mut bytes = [0; 16];
        bytes.iter_mut().zip(id).for_each(|(to, from)| *to = from);
        Ok(RunColumns {
            no: row.get(0)?,
            id: RunId::from_bytes(bytes),
            tenant: row.get(2)?,
            fold: u32::try_from(fold.max(0)).unwrap_or(u32::MAX),
            rest,
        })
    }

    /// What its columns say of a run whose fold may be unreadable.
    pub(super) fn facts(&self, connection: &Connection, texts: &Texts) -> Option<Facts> {
        let rest = self.rest.as_ref().ok()?;
        facts(connection, texts, self.id, self.tenant, rest).ok()
    }

    /// The run, or what is wrong with its row.
    pub(super) fn stored(self, connection: &Connection, texts: &Texts) -> Result<StoredRun, StoreError> {
        if self.fold > FOLD_VERSION {
            return Err(StoreError::Newer { run: self.id, found: self.fold });
        }
        let id = self.id;
        let is_sealed = self.rest.as_ref().is_ok_and(|rest| rest.fold.is_sealed());
        let key = if is_sealed { texts.key(id)? } else { FoundKey::Never };
        let read = || {
            let rest = self.rest?;
            if let Some(why) = rest.quarantined {
                return Err(CorruptRow(why));
            }
            let rebuilt =
                if self.fold < FOLD_VERSION { rebuild(connection, texts, id, self.no, &key)? } else { None };
            match rebuilt {
                Some(row) => Ok(StoredRun { row, lease: rest.lease }),
                None => decode(connection, texts, id, self.no, self.tenant, (rest, &key)),
            }
        };
        read().map_err(|corrupt: CorruptRow| corrupt.of(id))
    }
}

/// A row of an older fold, made again from its events. None when they were erased: then the row is all there is.
fn rebuild(
    connection: &Connection,
    texts: &Texts,
    run: RunId,
    no: i64,
    key: &FoundKey,
) -> Result<Option<RunRow>, CorruptRow> {
    let mut statement = connection.prepare_cached(sql::LINKS)?;
    let mut found = statement.query(params![link_key(no, Seq(0)), link_key(no, Seq(SEQ_MAX)), i64::MAX])?;
    let (mut events, mut head) = (Vec::new(), None);
    while let Some(row) = found.next()? {
        let link = link(run, row, connection, texts, key)?;
        if matches!(link.contents, Contents::Erased { .. }) {
            return Ok(None);
        }
        events.extend(link.events().map_err(|bad| CorruptRow(bad.to_string()))?);
        head = Some(link.hash);
    }
    let folded = apply::fold(run, &events).zip(head);
    let (folded, head) = folded.ok_or_else(|| CorruptRow("its events do not begin a run".into()))?;
    Ok(Some(project::run_row(folded, head)))
}

fn decode(
    connection: &Connection,
    texts: &Texts,
    id: RunId,
    no: i64,
    tenant: i64,
    (rest, key): (OtherColumns, &FoundKey),
) -> Result<StoredRun, CorruptRow> {
    let text = |number: i64| texts.text(connection, number).map_err(CorruptRow::from);
    let facts = facts(connection, texts, id, tenant, &rest)?;
    let mut state = if rest.fold.is_sealed() {
        rest.fold.opened(key, &facts, rest.seq, rest.head)?.state()?
    } else {
        rest.fold.state()?
    };
    state.seq = Seq(rest.seq);
    state.at = Timestamp(rest.at);
    state.definition = text(rest.definition)?
        .parse()
        .map_err(|_| CorruptRow("its definition is not named by a digest".into()))?;
    let last = match rest.last_hash {
        Some(hash) => Some(Digest(hash)),
        None => last_hash(connection, no)?,
    };
    if last != Some(rest.head) {
        return Err(CorruptRow("its head is not the hash of its last link".into()));
    }
    let run = Run { facts, state };
    Ok(StoredRun { row: project::run_row(run, rest.head), lease: rest.lease })
}

/// What never changes of a run: columns of their own, so that it can be read when the fold cannot.
fn facts(
    connection: &Connection,
    texts: &Texts,
    id: RunId,
    tenant: i64,
    rest: &OtherColumns,
) -> Result<Facts, CorruptRow> {
    let text = |number: i64| texts.text(connection, number).map_err(CorruptRow::from);
    let session = match (&rest.session_name, rest.session) {
        // A run that was begun without naming a conversation.
        (None, 0) => id.own_session(),
        (Some(name), _) => SessionId::new(name)?,
        (None, number) => {
            let mut statement = connection.prepare_cached(sql::SESSION_NAME)?;
            let name = statement.query_row(params![number], |row| row.get::<_, String>(0));
            SessionId::new(name.map_err(|_| CorruptRow("its session is missing".into()))?)?
        }
    };
    Ok(Facts {
        id,
        tenant: Tenant::try_from(text(tenant)?)?,
        agent: AgentName::try_from(text(rest.agent)?)?,
        session,
        owner: UserId::try_from(text(rest.owner)?)?,
        driver: driver(rest.driver)?,
        parent: rest.parent.as_deref().map(parse::<Parent>).transpose()?,
        started_at: Timestamp(rest.started_at),
        inbox: rest
            .inbox
            .map(|inbox| inbox_place(&text(inbox)?, rest.priority, rest.inbox_facts.as_deref()))
            .transpose()?,
    })
}

impl OtherColumns {
    fn read(row: &Row<'_>) -> Result<OtherColumns, CorruptRow> {
        let columns = row.as_ref().column_count();
        let has = |column: usize| column < columns;
        let node: Option<[u8; 16]> = row.get(17)?;
        let until: Option<i64> = row.get(18)?;
        let lease = node.zip(until);
        Ok(OtherColumns {
            agent: row.get(3)?,
            session: row.get(4)?,
            owner: row.get(5)?,
            driver: row.get(6)?,
            started_at: row.get(7)?,
            parent: row.get(8)?,
            inbox: row.get(9)?,
            inbox_facts: row.get(10)?,
            priority: row.get(11)?,
            seq: row.get(12)?,
            at: row.get(13)?,
            head: Digest(row.get(14)?),
            definition: row.get(15)?,
            lease: lease.map(|(node, until)| Lease { node: Incarnation(node), until: Timestamp(until) }),
            fold: StoredFold::read(row)?,
            quarantined: row.get(20)?,
            session_name: if has(SESSION_COLUMN) { row.get(SESSION_COLUMN)? } else { None },
            last_hash: if has(LAST_HASH_COLUMN) { row.get(LAST_HASH_COLUMN)? } else { None },
        })
    }
}

fn last_hash(connection: &Connection, run: i64) -> Result<Option<Digest>, CorruptRow> {
    use rusqlite::OptionalExtension;
    let bounds = params![link_key(run, Seq(0)), link_key(run, Seq(SEQ_MAX))];
    let hash = connection.prepare_cached(sql::LINK_LAST)?.query_row(bounds, |row| row.get(0)).optional()?;
    Ok(hash.map(Digest))
}

/// A link from its row. What is sealed counts as erased where there is no key for it.
pub(super) fn link(
    run: RunId,
    row: &Row<'_>,
    connection: &Connection,
    texts: &Texts,
    opening: &FoundKey,
) -> Result<Link, CorruptRow> {
    let key: i64 = row.get(0)?;
    let actor = texts.text(connection, row.get(3)?)?;
    let salt: Option<[u8; 16]> = row.get(5)?;
    let payload: Option<String> = row.get(6)?;
    let commitment: Option<[u8; 32]> = row.get(7)?;
    let header = Header {
        run,
        first: Seq(u64::try_from(key).unwrap_or_default() & SEQ_MAX),
        count: row.get(1)?,
        at: Timestamp(row.get(2)?),
        actor: actor.parse::<Actor>().map_err(|_| CorruptRow("a link has no readable actor".into()))?,
    };
    let hash = Digest(row.get(4)?);
    let contents = match (salt, payload, commitment) {
        (Some(salt), Some(payload), None) => Contents::Whole { salt, payload: payload.into_bytes() },
        (None, None, Some(commitment)) => Contents::Erased { commitment: Digest(commitment) },
        (None, Some(payload), Some(commitment)) => {
            opened_link(opening, &header, (hash, Digest(commitment)), &payload)?
        }
        _ => return Err(CorruptRow("a link is neither whole nor erased".into())),
    };
    Ok(Link { header, contents, hash })
}
