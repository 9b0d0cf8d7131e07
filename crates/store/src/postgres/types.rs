//! Between Rust's types and Postgres's: ids as uuid, sequences as bigint.
//!
//! Sixteen bytes are a uuid, because the database stores those without a length.

use bytes::BytesMut;
use standfast_core::id::RunId;
use standfast_core::run::FOLD_VERSION;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

/// Sixteen bytes: the id of a run, a node, a secret, a salt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Bytes16(pub(super) [u8; 16]);

impl From<RunId> for Bytes16 {
    fn from(run: RunId) -> Bytes16 {
        Bytes16(*run.bytes())
    }
}

impl Bytes16 {
    pub(super) fn run(self) -> RunId {
        RunId::from_bytes(self.0)
    }
}

type BoxedError = Box<dyn std::error::Error + Sync + Send>;

impl ToSql for Bytes16 {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, BoxedError> {
        out.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::UUID
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Bytes16 {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Bytes16, BoxedError> {
        Ok(Bytes16(raw.try_into()?))
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::UUID
    }
}

/// A count or sequence as a column; the last one when it does not fit.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// How many rows, as a parameter.
pub(super) fn rows(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// The newest fold that this program reads, as a parameter.
pub(super) fn fold() -> i32 {
    i32::try_from(FOLD_VERSION).unwrap_or(i32::MAX)
}
