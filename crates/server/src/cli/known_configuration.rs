//! Which configuration this server last went by, so that the audit hears of each change of it, also of one that was made while nothing ran.
//!
//! Its digest stands in the data directory; the first one is no change. What the audit says of it is the engine's.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use standfast_core::digest::{self, Digest};
use standfast_engine::Engine;

/// The file that has the digest.
pub(super) struct KnownConfiguration(PathBuf);

impl KnownConfiguration {
    /// The one of a data directory.
    pub(super) fn below(data: &Path) -> KnownConfiguration {
        KnownConfiguration(data.join("configuration.digest"))
    }

    /// Tells the audit if the server goes by another file now than before. Where that cannot be kept it is told again later.
    pub(super) async fn note(&self, engine: &Engine, file: Option<&[u8]>) {
        let Some(file) = file else { return };
        let after = digest::of_parts("standfast.configuration.1", &[file]);
        let known = std::fs::read_to_string(&self.0).ok();
        let before: Option<Digest> = known.and_then(|text| text.trim().parse().ok());
        if before == Some(after) {
            return;
        }
        if let Some(before) = before
            && let Err(error) = engine.record_configuration(before, after).await
        {
            tracing::error!(%error, "audit: a change of the configuration could not be recorded");
            return;
        }
        if let Err(error) = self.keep(after) {
            tracing::warn!(%error, path = %self.0.display(), "audit: the digest of the configuration could not be kept");
        }
    }

    fn keep(&self, digest: Digest) -> std::io::Result<()> {
        let unfinished = self.0.with_extension("part");
        let mut file =
            File::options().create(true).truncate(true).write(true).mode(0o600).open(&unfinished)?;
        file.write_all(format!("{digest}\n").as_bytes())?;
        std::fs::rename(unfinished, &self.0)
    }
}
