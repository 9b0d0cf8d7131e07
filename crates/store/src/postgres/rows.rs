//! Between rows and the core's types.
//!
//! Reading is strict: a row that is not exactly what this store writes is *corrupt*, which quarantines its run and
//! nothing else.

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
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

use super::types::Bytes16;
use crate::columns::{CorruptRow, driver, inbox_place, parse};
use crate::error::StoreError;
use crate::query::{Lease, StoredRun};

impl From<tokio_postgres::Error> for CorruptRow {
    fn from(error: tokio_postgres::Error) -> CorruptRow {
        CorruptRow(format!("a column cannot be read: {}", super::failure::describe(&error)))
    }
}

/// A column, or what is wrong with it.
pub(super) fn column<'a, T: FromSql<'a>>(row: &'a Row, index: usize) -> Result<T, CorruptRow> {
    row.try_get(index).map_err(CorruptRow::from)
}

/// A digest in a column.
pub(super) fn digest(row: &Row, index: usize) -> Result<Digest, CorruptRow> {
    let bytes: &[u8] = column(row, index)?;
    let bytes = bytes.try_into().map_err(|_| CorruptRow(format!("a digest has {} bytes", bytes.len())))?;
    Ok(Digest(bytes))
}

/// A sequence in a column.
pub(super) fn seq(row: &Row, index: usize) -> Result<Seq, CorruptRow> {
    let number: i64 = column(row, index)?;
    u64::try_from(number).map(Seq).map_err(|_| CorruptRow(format!("there is no event {number}")))
}

/// An instant in a column.
pub(super) fn instant(row: &Row, index: usize) -> Result<Option<Timestamp>, CorruptRow> {
    Ok(column::<Option<i64>>(row, index)?.map(Timestamp))
}

/// A lease in two columns.
pub(super) fn lease(row: &Row, node: usize, until: usize) -> Result<Option<Lease>, CorruptRow> {
    let node = column::<Option<Bytes16>>(row, node)?.map(|node| Incarnation(node.0));
    Ok(node.zip(instant(row, until)?).map(|(node, until)| Lease { node, until }))
}

/// What a row of a run says before anything is made of it. Its columns begin at `from`.
pub(super) struct RunColumns<'a> {
    row: &'a Row,
    from: usize,
    pub(super) id: RunId,
    fold: u32,
}

impl RunColumns<'_> {
    /// The order is that of `run_columns!`.
    pub(super) fn of(row: &Row, from: usize) -> Result<RunColumns<'_>, StoreError> {
        let unreadable = |corrupt: CorruptRow| StoreError::unavailable(corrupt.0);
        let id: Bytes16 = column(row, from).map_err(unreadable)?;
        let fold: i32 = column(row, from + 16).map_err(unreadable)?;
        let id = id.run();
        let fold = u32::try_from(fold).map_err(|_| CorruptRow(format!("there is no fold {fold}")).of(id))?;
        Ok(RunColumns { row, from, id, fold })
    }

    /// Whether its state must be made again from its events.
    pub(super) fn is_of_an_older_fold(&self) -> bool {
        self.fold < FOLD_VERSION
    }

    /// The run, or what is wrong with its row. One of an older fold is made from its links, unless they were erased.
    pub(super) fn stored(&self, links: Option<&[Link]>) -> Result<StoredRun, StoreError> {
        if self.fold > FOLD_VERSION {
            return Err(StoreError::Newer { run: self.id, found: self.fold });
        }
        let read = || -> Result<StoredRun, CorruptRow> {
            if let Some(why) = column::<Option<String>>(self.row, self.from + 21)? {
                return Err(CorruptRow(why));
            }
            let rebuilt = links.map(|links| rebuild(self.id, links)).transpose()?.flatten();
            match rebuilt {
                Some(row) => Ok(StoredRun { row, lease: lease(self.row, self.from + 17, self.from + 18)? }),
                None => self.decode(),
            }
        };
        read().map_err(|corrupt| corrupt.of(self.id))
    }

    /// What never changes of a run: columns of their own, so that it can be read when the fold cannot.
    pub(super) fn facts(&self) -> Result<Facts, CorruptRow> {
        let (row, from) = (self.row, self.from);
        let inbox: Option<&str> = column(row, from + 9)?;
        let priority: Option<i16> = column(row, from + 11)?;
        let priority = priority.map(u8::try_from).transpose();
        let priority = priority.map_err(|_| CorruptRow("its priority is out of range".into()))?;
        let facts: Option<&str> = column(row, from + 10)?;
        let parent: Option<&str> = column(row, from + 8)?;
        Ok(Facts {
            id: self.id,
            tenant: Tenant::new(column::<&str>(row, from + 2)?)?,
            agent: AgentName::new(column::<&str>(row, from + 3)?)?,
            session: SessionId::new(column::<&str>(row, from + 4)?)?,
            owner: UserId::new(column::<&str>(row, from + 5)?)?,
            driver: driver(i64::from(column::<i16>(row, from + 6)?))?,
            parent: parent.map(parse::<Parent>).transpose()?,
            started_at: Timestamp(column(row, from + 7)?),
            inbox: inbox.map(|inbox| inbox_place(inbox, priority, facts)).transpose()?,
        })
    }

    fn decode(&self) -> Result<StoredRun, CorruptRow> {
        let (row, from) = (self.row, self.from);
        let facts = self.facts()?;
        let mut state: State = parse(column(row, from + 19)?)?;
        state.seq = seq(row, from + 12)?;
        state.at = Timestamp(column(row, from + 13)?);
        state.definition = digest(row, from + 15)?;
        let head = digest(row, from + 14)?;
        let last: Option<&[u8]> = column(row, from + 20)?;
        if last != Some(head.0.as_slice()) {
            return Err(CorruptRow("its head is not the hash of its last link".into()));
        }
        let run = Run { facts, state };
        Ok(StoredRun { row: project::run_row(run, head), lease: lease(row, from + 17, from + 18)? })
    }
}

/// A row of an older fold, made again from its events. None when they were erased: then the row is all there is.
fn rebuild(run: RunId, links: &[Link]) -> Result<Option<RunRow>, CorruptRow> {
    if links.iter().any(|link| matches!(link.contents, Contents::Erased { .. })) {
        return Ok(None);
    }
    let mut events = Vec::new();
    for link in links {
        events.extend(link.events().map_err(|bad| CorruptRow(bad.to_string()))?);
    }
    let folded = apply::fold(run, &events).zip(links.last());
    let (folded, last) = folded.ok_or_else(|| CorruptRow("its events do not begin a run".into()))?;
    Ok(Some(project::run_row(folded, last.hash)))
}

/// A link from its row.
pub(super) fn link(run: RunId, row: &Row) -> Result<Link, CorruptRow> {
    let salt: Option<Bytes16> = column(row, 5)?;
    let payload: Option<&str> = column(row, 6)?;
    let commitment: Option<&[u8]> = column(row, 7)?;
    let contents = match (salt, payload, commitment) {
        (Some(salt), Some(payload), None) => {
            Contents::Whole { salt: salt.0, payload: payload.as_bytes().to_vec() }
        }
        (None, None, Some(_)) => Contents::Erased { commitment: digest(row, 7)? },
        _ => return Err(CorruptRow("a link is neither whole nor erased".into())),
    };
    let count: i32 = column(row, 1)?;
    let actor: &str = column(row, 3)?;
    let header = Header {
        run,
        first: seq(row, 0)?,
        count: u32::try_from(count).map_err(|_| CorruptRow("a link has no events".into()))?,
        at: Timestamp(column(row, 2)?),
        actor: actor.parse::<Actor>().map_err(|_| CorruptRow("a link has no readable actor".into()))?,
    };
    Ok(Link { header, contents, hash: digest(row, 4)? })
}
