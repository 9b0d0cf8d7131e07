//! What callers were shown of the holds of a run, and so what they mean when they decide without naming one (C26).
//!
//! A mark for each caller and run, noted when an answer that showed the holds was completely written, without a sync of its
//! own. It says no more than a digest of what was shown: a hold that was closed, edited or joined by another does not fit
//! it any more. A mark that is lost costs one more question. Surfaces say what they show; what counts is decided here.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use standfast_core::digest::{self, Digest};
use standfast_core::hold::{Hold, HoldKind};
use standfast_core::id::{HoldId, RunId};
use standfast_core::name::UserId;
use standfast_core::run::Run;
use standfast_core::time::Millis;
use standfast_store::{Answer, KeyNote, KeyRecord, StoreError};
use tokio::sync::Notify;

use super::idempotency::{IdempotencyKey, REMEMBERED};
use crate::EngineError;
use crate::auth::Principal;
use crate::host::Host;
use crate::log::{HoldView, Log};
use crate::nodes::Nodes;

/// How often a mark that another node may just be writing is looked for again, and after how long for the first time; each
/// further time twice as long, as a busy node may need a moment.
const LOOKS: u32 = 4;
const LOOKS_AGAIN_AFTER: Millis = Millis(40);

/// A hold as it is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShownHold {
    /// Which.
    pub id: HoldId,
    /// How often it was edited before.
    pub revision: u32,
    /// Digest of the call that it is about.
    pub digest: Option<Digest>,
}

impl From<&HoldView> for ShownHold {
    fn from(view: &HoldView) -> ShownHold {
        ShownHold { id: view.row.id, revision: view.row.revision, digest: view.row.digest }
    }
}

/// What an answer shows of a run: the holds that it asks about, in full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownHolds {
    /// The run that was asked about. Holds of its sub-runs are shown with it.
    pub run: RunId,
    /// Its holds.
    pub holds: Vec<ShownHold>,
}

impl ShownHolds {
    /// The open holds of these kinds, as a run has them.
    #[must_use]
    pub fn of(run: &Run, is_shown: impl Fn(HoldKind) -> bool) -> ShownHolds {
        let id = run.facts.id;
        let shown = |hold: &Hold| ShownHold {
            id: HoldId { run: id, key: hold.key },
            revision: hold.revision,
            digest: run.call(hold.call()).and_then(|call| call.digest),
        };
        let holds = run.state.holds.iter().filter(|hold| is_shown(hold.kind)).map(shown).collect();
        ShownHolds { run: id, holds }
    }

    /// What the mark says.
    fn digest(&self) -> Digest {
        digest_of(&self.holds)
    }
}

/// The hold that a decision without an id means, or why it means none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImpliedHold {
    /// The one that its sender was shown last.
    Hold(ShownHold),
    /// Its sender was not shown what the run asks.
    NotShown,
    /// What its sender was shown last is no longer open, or has changed.
    Outdated,
    /// Its sender was shown several.
    Several,
    /// The same message was answered before, and did not mean this hold.
    Answered,
}

/// Notes on their way to the store.
#[derive(Debug, Default)]
struct Notes {
    under_way: Mutex<HashMap<(UserId, RunId), usize>>,
    written: Notify,
}

impl Notes {
    fn under_way(&self) -> MutexGuard<'_, HashMap<(UserId, RunId), usize>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, names: &[(UserId, RunId)]) {
        let mut under_way = self.under_way();
        for name in names {
            *under_way.entry(name.clone()).or_default() += 1;
        }
    }

    fn end(&self, names: &[(UserId, RunId)]) {
        let mut under_way = self.under_way();
        for name in names {
            if let Some(count) = under_way.get_mut(name) {
                *count -= 1;
                if *count == 0 {
                    under_way.remove(name);
                }
            }
        }
        drop(under_way);
        self.written.notify_waiters();
    }

    /// Waits for what was noted here about a caller and a run.
    async fn settled(&self, name: &(UserId, RunId)) {
        loop {
            let written = self.written.notified();
            tokio::pin!(written);
            written.as_mut().enable();
            if !self.under_way().contains_key(name) {
                return;
            }
            written.await;
        }
    }
}

/// What callers were shown.
pub struct HoldMarks {
    host: Arc<Host>,
    log: Arc<Log>,
    nodes: Arc<Nodes>,
    /// What was shown to whom, on its way to the store.
    notes: Arc<Notes>,
}

impl HoldMarks {
    pub(crate) fn new(log: Arc<Log>, nodes: Arc<Nodes>) -> HoldMarks {
        HoldMarks { host: log.host.clone(), log, nodes, notes: Arc::default() }
    }

    /// Notes that an answer was completely written: what it showed, and that whoever sent `answered` has its answer, so
    /// that the same words are something new from now on. A showing without holds takes back what was shown of its run
    /// before. Comes back at once; a note that is lost is lost.
    pub fn note_written(
        &self,
        who: &Principal,
        shown: &[ShownHolds],
        answered: Option<(RunId, &IdempotencyKey)>,
    ) {
        let expires_at = self.host.clock.now().plus(REMEMBERED);
        let mut notes: Vec<KeyNote> = shown
            .iter()
            .map(|showing| KeyNote {
                tenant: who.tenant.clone(),
                key: mark_of(who, showing.run),
                run: showing.run,
                kept: (!showing.holds.is_empty()).then(|| (showing.digest(), expires_at)),
            })
            .collect();
        if let Some((run, once)) = answered {
            notes.push(KeyNote { tenant: who.tenant.clone(), key: once.stored(who), run, kept: None });
        }
        self.note(who, notes);
    }

    /// Notes which hold a message meant that decided nothing: under this name it means no other when it comes again.
    pub fn note_meant(&self, who: &Principal, run: RunId, name: &str, meant: Option<ShownHold>) {
        let expires_at = self.host.clock.now().plus(REMEMBERED);
        let says = digest_of(meant.as_slice());
        let (tenant, key) = (who.tenant.clone(), meaning_of(who, run, name));
        self.note(who, vec![KeyNote { tenant, key, run, kept: Some((says, expires_at)) }]);
    }

    fn note(&self, who: &Principal, notes: Vec<KeyNote>) {
        // Outside of a runtime nothing can be awaited: the server is gone.
        if notes.is_empty() || tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        let names: Vec<(UserId, RunId)> = notes.iter().map(|note| (who.user.clone(), note.run)).collect();
        let under_way = self.notes.clone();
        under_way.begin(&names);
        // Handed over here and now, so that it stands in front of whatever its reader sends next.
        let written: Answer<()> = self.log.store.note_keys(notes);
        self.host.spawn(async move {
            if let Err(error) = written.await {
                tracing::debug!(%error, "decisions: could not note what was shown; callers are asked once more");
            }
            under_way.end(&names);
        });
    }

    /// The hold of a run that somebody means who names none: of those that are open, the one that they were last shown.
    /// `names` are those under which [`HoldMarks::note_meant`] would know the message.
    pub async fn implied_hold(
        &self,
        who: &Principal,
        run: RunId,
        names: &[String],
        open: &[ShownHold],
    ) -> Result<ImpliedHold, EngineError> {
        self.notes.settled(&(who.user.clone(), run)).await;
        let mut implied = self.look_for_mark(who, run, names, open).await?;
        // Another node may be about to write it.
        let looks = if self.nodes.is_shared { LOOKS } else { 0 };
        for look in 0..looks {
            match implied {
                ImpliedHold::NotShown | ImpliedHold::Outdated => {}
                ImpliedHold::Hold(_) | ImpliedHold::Several | ImpliedHold::Answered => break,
            }
            self.host.clock.sleep(Millis(LOOKS_AGAIN_AFTER.0 << look)).await;
            implied = self.look_for_mark(who, run, names, open).await?;
        }
        Ok(implied)
    }

    /// Waits until everything that was noted here about a caller and a run is known to every node.
    pub async fn notes_written(&self, who: &Principal, run: RunId) {
        self.notes.settled(&(who.user.clone(), run)).await;
    }

    async fn look_for_mark(
        &self,
        who: &Principal,
        run: RunId,
        names: &[String],
        open: &[ShownHold],
    ) -> Result<ImpliedHold, StoreError> {
        let find = |key: String| self.log.store.find_key(who.tenant.clone(), key);
        let mark = find(mark_of(who, run));
        let meanings = names.iter().map(|name| find(meaning_of(who, run, name)));
        let (mark, meanings) = tokio::try_join!(mark, futures_util::future::try_join_all(meanings))?;
        let implied = implied(mark.map(|mark: KeyRecord| mark.request), open);
        let means_another =
            |hold: ShownHold| meanings.iter().flatten().any(|meant| meant.request != digest_of(&[hold]));
        Ok(match implied {
            ImpliedHold::Hold(hold) if means_another(hold) => ImpliedHold::Answered,
            ImpliedHold::Hold(_)
            | ImpliedHold::NotShown
            | ImpliedHold::Outdated
            | ImpliedHold::Several
            | ImpliedHold::Answered => implied,
        })
    }
}

/// What a mark means, of these open holds.
fn implied(mark: Option<Digest>, open: &[ShownHold]) -> ImpliedHold {
    let Some(mark) = mark else { return ImpliedHold::NotShown };
    match open.iter().find(|hold| digest_of(&[**hold]) == mark) {
        Some(hold) => ImpliedHold::Hold(*hold),
        None if open.len() > 1 && digest_of(open) == mark => ImpliedHold::Several,
        None => ImpliedHold::Outdated,
    }
}

/// The digest of holds as they are shown, in any order.
fn digest_of(holds: &[ShownHold]) -> Digest {
    let text = |hold: &ShownHold| {
        let digest = hold.digest.map(|digest| digest.to_string()).unwrap_or_default();
        format!("{} {} {digest}", hold.id, hold.revision)
    };
    let mut texts: Vec<String> = holds.iter().map(text).collect();
    texts.sort_unstable();
    let parts: Vec<&[u8]> = texts.iter().map(String::as_bytes).collect();
    digest::of_parts("standfast.shown.1", &parts)
}

/// The key of the mark of a caller on a run.
fn mark_of(who: &Principal, run: RunId) -> String {
    let (user, run) = (who.user.as_str(), run.to_string());
    digest::of_parts("standfast.mark.1", &[user.as_bytes(), run.as_bytes()]).to_string()
}

/// The key of what a message meant that decided nothing.
fn meaning_of(who: &Principal, run: RunId, name: &str) -> String {
    let (user, run) = (who.user.as_str(), run.to_string());
    let parts = [user.as_bytes(), run.as_bytes(), name.as_bytes()];
    digest::of_parts("standfast.meaning.1", &parts).to_string()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq, proptest};
    use standfast_core::id::{CallNo, HoldKey, Secret, StorageKind};
    use standfast_core::name::Tenant;
    use standfast_core::time::Timestamp;

    use super::*;

    fn run() -> RunId {
        RunId::new(&Tenant::default_tenant(), StorageKind::Durable, Timestamp(0), [0; 5])
    }

    fn hold(call: u32, revision: u32, says: u8) -> ShownHold {
        let id = HoldId { run: run(), key: HoldKey { call: CallNo(call), secret: Secret([7; 16]) } };
        ShownHold { id, revision, digest: Some(Digest([says; 32])) }
    }

    fn mark(holds: &[ShownHold]) -> Option<Digest> {
        Some(ShownHolds { run: run(), holds: holds.to_vec() }.digest())
    }

    /// C26, T5: the hold that was shown alone, as it was shown; not one of several, not an edited one, not the next.
    #[test]
    fn a_mark_means_the_hold_that_was_shown() {
        let (one, two) = (hold(1, 0, 1), hold(2, 0, 2));
        assert_eq!(implied(mark(&[one]), &[one]), ImpliedHold::Hold(one));
        assert_eq!(
            implied(mark(&[one]), &[one, two]),
            ImpliedHold::Hold(one),
            "another one opened meanwhile"
        );
        assert_eq!(implied(mark(&[one]), &[two]), ImpliedHold::Outdated, "it is closed");
        assert_eq!(implied(mark(&[one]), &[]), ImpliedHold::Outdated);
        assert_eq!(implied(mark(&[one]), &[hold(1, 1, 1)]), ImpliedHold::Outdated, "it was edited");
        assert_eq!(implied(mark(&[one]), &[hold(1, 0, 9)]), ImpliedHold::Outdated, "it says something else");
        assert_eq!(implied(mark(&[one, two]), &[two, one]), ImpliedHold::Several);
        assert_eq!(implied(mark(&[one, two]), &[one]), ImpliedHold::Outdated, "it was not shown alone");
        assert_eq!(implied(None, &[one]), ImpliedHold::NotShown);
    }

    fn holds() -> impl Strategy<Value = Vec<ShownHold>> {
        let one = (1..4_u32, 0..3_u32, any::<bool>())
            .prop_map(|(call, edits, says)| hold(call, edits, says.into()));
        proptest::collection::vec(one, 0..4).prop_map(|mut all| {
            all.sort_by_key(|hold| hold.id.key.call);
            all.dedup_by_key(|hold| hold.id.key.call);
            all
        })
    }

    proptest! {
        /// Whatever was shown and whatever is open: a decision means a hold only if that very hold, and nothing else, was
        /// shown, and it is open.
        #[test]
        fn only_what_was_shown_alone_is_meant(shown in holds(), open in holds()) {
            match implied(mark(&shown), &open) {
                ImpliedHold::Hold(meant) => {
                    prop_assert_eq!(&shown, &vec![meant]);
                    prop_assert!(open.contains(&meant));
                }
                ImpliedHold::Several => prop_assert!(shown.len() > 1 && shown == open),
                ImpliedHold::Outdated => prop_assert!(shown.len() != 1 || !open.contains(&shown[0])),
                ImpliedHold::NotShown | ImpliedHold::Answered => prop_assert!(false, "there is a mark"),
            }
        }
    }
}
