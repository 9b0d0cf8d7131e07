//! The random questions of the differential run: claims, leases, notices, lists, lookups.
//!
//! Each is put to both stores. Lists are followed to their end by each store's own cursors.

use standfast_core::digest::Digest;
use standfast_core::hold::HoldKind;
use standfast_core::id::{Seq, Shard};
use standfast_core::name::InboxName;
use standfast_core::project::Phase;
use standfast_core::time::Millis;

use super::super::support::{
    LOOKUP, SHELL, agent, all_pages, block_on, checked, session, session_of, tenant, tool,
};
use super::{AGENTS, INBOXES, KEYS, NODES, PEOPLE, SESSIONS, TENANTS, Twins};
use crate::{
    Audience, AudienceMember, Claim, Claimant, Credential, DeliveryStore, DueNotice, HoldFilter, HoldQuery,
    NoticeQuery, RunFilter, RunQuery, SessionChange, SettleNotice, ShardSet, Store,
};

impl Twins {
    pub(super) fn claims(&mut self) {
        let random = &mut self.random;
        let shards = match random.below(3) {
            0 => {
                let (rest, modulus) = (random.below(2), 2);
                ShardSet::of((0..=255).filter(|n| u64::from(*n) % modulus == rest).map(Shard))
            }
            _ => ShardSet::all(),
        };
        let room = match random.below(3) {
            0 => vec![(tenant(random.name(&TENANTS)), agent(random.name(&AGENTS)), random.index(2))],
            _ => Vec::new(),
        };
        let now = self.world.scribe.now;
        let until = now.plus(Millis::seconds(30));
        let (node, limit) = (*random.pick(&NODES), random.index(6));
        let claim = Claim { node, now, until, shards, limit, room };
        let _ = self.same(|store| store.claim_due(claim.clone()));
    }

    pub(super) fn renews(&mut self) {
        let runs: Vec<_> = self.rows.iter().map(|row| row.run.facts.id).collect();
        let (node, until) = (*self.random.pick(&NODES), self.world.now().plus(Millis::seconds(20)));
        let _ = self.same(|store| store.renew(runs.clone(), node, until));
    }

    pub(super) fn releases(&mut self) {
        if self.rows.is_empty() {
            return;
        }
        let (run, node) = (self.random.pick(&self.rows).run.facts.id, *self.random.pick(&NODES));
        let wake_at = self.random.one_in(3).then_some(self.world.now());
        let _ = self.same(|store| store.release(run, node, wake_at));
    }

    /// Numbers of notices are each store's own: what is due is compared, then settled by each one's number.
    pub(super) fn settles_notices(&mut self) {
        let (now, limit) = (self.world.now(), self.random.index(20) + 1);
        let due = |store: &dyn Store| block_on(store.due_notices(NoticeQuery::all(now, limit))).unwrap();
        let (wanted, found) = (due(&*self.memory), due(&*self.world.store()));
        let unnumbered =
            |due: &[DueNotice]| due.iter().map(|due| DueNotice { no: 0, ..due.clone() }).collect::<Vec<_>>();
        assert_eq!(unnumbered(&found), unnumbered(&wanted));
        for (wanted, found) in wanted.iter().zip(&found) {
            let settle = match self.random.below(4) {
                0 => {
                    let from = wanted.from.plus(self.random.index(2));
                    SettleNotice::Retry { at: now.plus(Millis::seconds(10)), from }
                }
                1 => SettleNotice::Dead { at: now, from: wanted.from, why: "503".into() },
                _ => SettleNotice::Delivered { upto: wanted.from.plus(self.random.index(3)) },
            };
            assert_eq!(block_on(self.memory.settle_notice(wanted.no, settle.clone())), Ok(()));
            assert_eq!(block_on(self.world.store().settle_notice(found.no, settle)), Ok(()));
        }
    }

    pub(super) fn lists_runs(&mut self) {
        let random = &mut self.random;
        let now = self.world.scribe.now;
        let filter = match random.below(8) {
            7 => RunFilter::WithJobs,
            6 => RunFilter::Owner(crate::conformance::support::user("olga")),
            5 => RunFilter::SessionOf(
                crate::conformance::support::user("olga"),
                agent(random.name(&AGENTS)),
                session(random.name(&SESSIONS)),
            ),
            4 => RunFilter::Inbox(InboxName::new(random.name(&INBOXES)).unwrap()),
            0 => RunFilter::All,
            1 => RunFilter::Agent(agent(random.name(&AGENTS))),
            2 => RunFilter::Session(agent(random.name(&AGENTS)), session(random.name(&SESSIONS))),
            _ => {
                let claimant = match random.below(3) {
                    0 => Claimant::Anybody,
                    1 => Claimant::Agent(agent(random.name(&AGENTS))),
                    _ => Claimant::Worker {
                        agent: agent(random.name(&AGENTS)),
                        kinds: (0..random.below(2)).map(|_| "ticket".to_owned()).collect(),
                    },
                };
                RunFilter::Claimable(InboxName::new(random.name(&INBOXES)).unwrap(), now, claimant)
            }
        };
        let phases = (0..random.below(3)).map(|_| *random.pick(&Phase::ALL)).collect();
        let (tenant, limit) = (tenant(random.name(&TENANTS)), random.index(9) + 1);
        let since = random.one_in(3).then(|| now.plus(Millis::seconds(-60)));
        let query = RunQuery { tenant, filter, phases, since, cursor: None, limit };
        self.compare_runs(&query);
    }

    fn compare_runs(&self, query: &RunQuery) {
        let all = |store: &dyn Store| {
            all_pages(|cursor| block_on(store.list_runs(RunQuery { cursor, ..query.clone() })).unwrap())
        };
        assert_eq!(all(&*self.world.store()), all(&*self.memory), "{query:?}");
    }

    pub(super) fn lists_holds(&mut self) {
        let random = &mut self.random;
        let filter = match random.below(6) {
            5 => HoldFilter::Inbox(InboxName::new(random.name(&INBOXES)).unwrap()),
            0 => HoldFilter::Agent(agent(random.name(&AGENTS))),
            1 => HoldFilter::Tool(tool(random.name(&[SHELL, LOOKUP]))),
            2 => HoldFilter::Session(agent(random.name(&AGENTS)), session(random.name(&SESSIONS))),
            3 if !self.rows.is_empty() => HoldFilter::Run(random.pick(&self.rows).run.facts.id),
            _ => HoldFilter::All,
        };
        let audience = match random.below(2) {
            0 => Audience::Everyone,
            _ => Audience::AnyOf(
                (0..random.below(4)).map(|_| AudienceMember(random.name(&PEOPLE).into())).collect(),
            ),
        };
        let kinds = (0..random.below(3)).map(|_| *random.pick(&HoldKind::ALL)).collect();
        let (tenant, limit) = (tenant(random.name(&TENANTS)), random.index(9) + 1);
        self.compare_holds(&HoldQuery { tenant, audience, filter, kinds, cursor: None, limit });
    }

    fn compare_holds(&self, query: &HoldQuery) {
        let all = |store: &dyn Store| {
            all_pages(|cursor| block_on(store.list_holds(HoldQuery { cursor, ..query.clone() })).unwrap())
        };
        assert_eq!(all(&*self.world.store()), all(&*self.memory), "{query:?}");
    }

    pub(super) fn looks_up(&mut self) {
        if let Some(hold) = (!self.holds.is_empty()).then(|| *self.random.pick(&self.holds)) {
            let _ = self.same(|store| store.find_hold(hold));
        }
        if let Some(row) = (!self.rows.is_empty()).then(|| self.random.pick(&self.rows).clone()) {
            let _ = self.same(|store| store.load(row.run.facts.id));
            let _ = self.same(|store| store.session(session_of(&row)));
        }
        let of = tenant(self.random.name(&TENANTS));
        let _ = self.same(|store| store.counts(of.clone()));
        let (of, key) = (tenant(self.random.name(&TENANTS)), self.random.name(&KEYS).to_owned());
        let _ = self.same(|store| store.find_key(of.clone(), key.clone()));
        let digest = Digest([u8::try_from(self.random.below(4)).unwrap(); 32]);
        let _ = self.same(|store| store.definition(of.clone(), digest));
    }

    pub(super) fn changes_a_session(&mut self) {
        if self.rows.is_empty() {
            return;
        }
        let mut key = session_of(self.random.pick(&self.rows));
        if self.random.one_in(4) {
            key.session = session("never used");
        }
        let before = self.same(|store| store.session(key.clone())).unwrap();
        let before = match before {
            Some(row) if self.random.below(3) > 0 => row.metadata,
            Some(_) | None => "{\"stale\":1}".into(),
        };
        let after = format!("{{\"n\":{}}}", self.random.below(100));
        let change = match self.random.below(12) {
            0 => SessionChange::Close,
            _ => SessionChange::Metadata { before, after },
        };
        let now = self.world.now();
        let _ = self.same(|store| store.change_session(key.clone(), change.clone(), now));
    }

    pub(super) fn changes_a_credential(&mut self) {
        let random = &mut self.random;
        let (of, prefix) = (tenant(random.name(&TENANTS)), random.name(&KEYS).to_owned());
        let at = self.world.scribe.now;
        if random.one_in(3) {
            let _ = self.same(|store| store.revoke_credential(of.clone(), prefix.clone(), at));
        } else if random.one_in(4) {
            let _ = self.same(|store| store.expire_credential(of.clone(), prefix.clone(), at));
        } else {
            let hash = Digest([u8::try_from(random.below(9)).unwrap(); 32]);
            let (facts, expires_at) =
                (format!("{{\"n\":{}}}", random.below(9)), random.one_in(2).then_some(at));
            let new = Credential {
                tenant: of.clone(),
                prefix: prefix.clone(),
                hash,
                facts,
                expires_at,
                revoked_at: None,
            };
            let _ = self.same(|store| store.put_credential(new.clone()));
        }
        let _ = self.same(|store| store.credential(prefix.clone()));
        let _ = self.same(|store| store.list_credentials(of.clone()));
    }

    pub(super) fn reads_links(&mut self) {
        if self.rows.is_empty() {
            return;
        }
        let row = self.random.pick(&self.rows).clone();
        let after = Seq(self.random.below(row.run.state.seq.0 + 2));
        let limit = self.random.index(4) + 1;
        let _ = self.same(|store| store.links(row.run.facts.id, after, limit));
    }

    /// At the end nothing may differ anywhere.
    pub(super) fn compare_everything(&mut self) {
        self.world.reopen();
        for row in &self.rows {
            let run = row.run.facts.id;
            assert_eq!(self.same(|store| store.load(run)).map(|stored| stored.row), Ok(row.clone()));
            let links = self.same(|store| store.links(run, Seq(0), usize::MAX)).unwrap();
            assert_eq!(checked(&*self.world.store(), run), Ok(row.clone()));
            for envelope in links.iter().flat_map(|link| link.events().unwrap()) {
                for name in envelope.event.blobs() {
                    let _ = self.same(|store| store.blob(run, name.digest));
                }
            }
        }
        for hold in &self.holds {
            let _ = self.same(|store| store.find_hold(*hold));
        }
        for of in TENANTS.map(tenant) {
            let (filter, phases) = (RunFilter::All, Vec::new());
            self.compare_runs(&RunQuery {
                tenant: of.clone(),
                filter,
                phases,
                since: None,
                cursor: None,
                limit: 7,
            });
            let _ = self.same(|store| store.counts(of.clone()));
            let (audience, filter) = (Audience::Everyone, HoldFilter::All);
            self.compare_holds(&HoldQuery {
                tenant: of,
                audience,
                filter,
                kinds: vec![],
                cursor: None,
                limit: 7,
            });
        }
        self.world.later(Millis::hours(1000));
        self.settles_notices();
        let (node, now) = (NODES[0], self.world.now());
        let until = now.plus(Millis::seconds(1));
        let claim = Claim { node, now, until, shards: ShardSet::all(), limit: 10_000, room: Vec::new() };
        let _ = self.same(|store| store.claim_due(claim.clone()));
    }
}
