//! The one suite that every backend passes: no optional parts, nothing skipped.
//!
//! [`conformance!`](crate::conformance!) turns a [`Factory`] into one named test for each case. Cases are grouped by
//! theme, one file each; `differential.rs` compares with the memory store; `faults` breaks the SQLite store's file,
//! disk and process. Test data come from the real rules through `support.rs`.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "test support: a failed expectation is a failed test"
)]
#![expect(missing_docs, reason = "the name of a case says what it shows")]

pub mod appending;
pub mod audit_entries;
pub mod claims;
pub mod cluster;
pub mod concurrency;
pub mod counts;
pub mod credentials;
pub mod differential;
pub mod erasing;
pub mod faults;
pub mod flaky;
pub mod guards;
pub mod hold_lists;
pub mod key_notes;
pub mod leases;
pub mod lost_answers;
pub mod nodes;
pub mod notices;
pub mod odd_payloads;
pub mod puts;
pub mod quarantine;
pub mod random;
pub mod registry;
pub mod run_lists;
pub mod sealed;
pub mod sessions;
pub mod subscriptions;
pub mod support;

use std::path::PathBuf;
use std::sync::Arc;

use crate::Store;
use crate::file::{FileOptions, FileStore};
use crate::memory::MemoryStore;
use crate::postgres::{PostgresOptions, PostgresStore};
use crate::sqlite::{SqliteOptions, SqliteStore};

/// A place for one store.
pub trait Backend {
    /// Opens the store: the first time it is empty, later it has everything that was acknowledged. Whoever had it
    /// open has dropped it.
    fn open(&self) -> Arc<dyn Store>;
}

/// Makes a fresh, empty place for a store.
pub type Factory = fn() -> Box<dyn Backend>;

/// A store in memory; it is never closed, because nothing would be left of it.
#[must_use]
pub fn memory() -> Box<dyn Backend> {
    Box::new(MemoryBackend(Arc::new(MemoryStore::new())))
}

/// A SQLite file in a directory of its own, which goes with it.
#[must_use]
pub fn sqlite() -> Box<dyn Backend> {
    Box::new(SqliteBackend(tempfile::tempdir().unwrap()))
}

/// The same, with sealed payloads.
#[must_use]
pub fn sealed_sqlite() -> Box<dyn Backend> {
    Box::new(SealedSqliteBackend(tempfile::tempdir().unwrap()))
}

/// A folder of files in a directory of its own, which goes with it.
#[must_use]
pub fn file() -> Box<dyn Backend> {
    Box::new(FileBackend(tempfile::tempdir().unwrap()))
}

struct FileBackend(tempfile::TempDir);

impl Backend for FileBackend {
    fn open(&self) -> Arc<dyn Store> {
        Arc::new(FileStore::open(&FileOptions::at(self.0.path().join("files"))).unwrap())
    }
}

/// A database of its own on the Postgres that the tests share.
#[must_use]
pub fn postgres() -> Box<dyn Backend> {
    Box::new(PostgresBackend(cluster::shared().database()))
}

struct PostgresBackend(String);

impl Backend for PostgresBackend {
    fn open(&self) -> Arc<dyn Store> {
        Arc::new(PostgresStore::open(&PostgresOptions::at(self.0.as_str())).unwrap())
    }
}

/// A memory store beside another one that stands for the durable one.
#[must_use]
pub fn split() -> Box<dyn Backend> {
    let (durable, memory) = (Arc::new(MemoryStore::new()), Arc::new(MemoryStore::new()));
    Box::new(SplitBackend(Arc::new(crate::split_store::SplitStore::new(durable, memory))))
}

struct SplitBackend(Arc<crate::split_store::SplitStore>);

impl Backend for SplitBackend {
    fn open(&self) -> Arc<dyn Store> {
        self.0.clone()
    }
}

struct MemoryBackend(Arc<MemoryStore>);

impl Backend for MemoryBackend {
    fn open(&self) -> Arc<dyn Store> {
        self.0.clone()
    }
}

struct SqliteBackend(tempfile::TempDir);

impl SqliteBackend {
    fn path(&self) -> PathBuf {
        self.0.path().join("standfast.db")
    }
}

impl Backend for SqliteBackend {
    fn open(&self) -> Arc<dyn Store> {
        Arc::new(SqliteStore::open(&SqliteOptions::at(self.path())).unwrap())
    }
}

struct SealedSqliteBackend(tempfile::TempDir);

impl Backend for SealedSqliteBackend {
    fn open(&self) -> Arc<dyn Store> {
        let path = self.0.path().join("standfast.db");
        let sealing = support::sealing(&self.0.path().join("standfast.db.keys"), &["k1"]);
        Arc::new(
            SqliteStore::open(&SqliteOptions { sealing: Some(sealing), ..SqliteOptions::at(path) }).unwrap(),
        )
    }
}

/// One named test for each case, for the backend that this [`Factory`](crate::conformance::Factory) makes.
#[macro_export]
macro_rules! conformance {
    ($factory:path) => {
        $crate::conformance_cases! { $factory;
            appending:
                a_new_run_is_stored,
                every_fact_of_a_run_is_stored,
                a_run_is_created_once,
                an_append_moves_the_run_on,
                a_stale_sequence_is_a_conflict,
                a_sequence_from_the_future_is_a_conflict,
                another_head_at_the_same_sequence_is_a_conflict,
                an_unknown_run_is_not_found,
                several_runs_are_written_together,
                a_conflict_in_the_last_run_undoes_all,
                one_run_twice_in_an_append_is_a_conflict,
                appends_are_written_in_the_order_of_the_calls,
                what_was_acknowledged_survives_reopening,
                ;
            guards:
                an_unused_key_passes,
                a_used_key_is_refused,
                an_effect_is_claimed_once,
                a_take_is_refused_unless_all_others_were_counted,
                a_key_of_another_tenant_does_not_count,
                a_counter_is_exact_up_to_its_limit,
                a_refused_append_adds_nothing_to_its_counters,
                a_counter_gives_back,
                a_counter_belongs_to_its_tenant,
                counters_of_one_append_add_up,
                an_open_or_unknown_session_takes_runs,
                a_closed_session_takes_none,
                another_nodes_live_lease_is_respected,
                the_guard_that_failed_is_named,
                ;
            puts:
                a_key_remembers_what_it_was_used_for,
                a_key_used_again_names_its_last_use,
                keys_that_begin_alike_are_listed_backwards,
                keys_past_their_time_are_forgotten_in_pieces,
                a_large_value_is_kept_with_its_run,
                the_same_large_value_twice_is_one,
                a_definition_is_stored_once_for_its_tenant,
                nothing_is_put_by_a_refused_append,
                links_are_read_from_any_event,
                links_come_back_whole,
                ;
            run_lists:
                runs_are_listed_newest_first,
                cursors_walk_all_runs_exactly_once,
                a_cursor_survives_new_runs,
                runs_are_listed_by_agent,
                runs_are_listed_by_session,
                runs_are_listed_by_owner_and_by_when_they_changed,
                runs_are_listed_by_phase,
                tenants_do_not_see_each_others_runs,
                runs_are_listed_and_counted_by_inbox,
                claimable_runs_come_by_priority_then_age,
                a_claimed_run_is_not_claimable,
                claimable_runs_obey_phases,
                ;
            hold_lists:
                holds_are_listed_oldest_first,
                holds_are_listed_by_deadline,
                an_audience_sees_its_holds_each_once,
                an_audience_can_grow,
                cursors_walk_all_holds_exactly_once,
                holds_are_listed_by_agent_tool_session_and_run,
                holds_are_listed_by_inbox,
                holds_are_listed_by_kind,
                tenants_do_not_see_each_others_holds,
                a_decided_hold_leaves_the_lists_and_keeps_its_record,
                a_hold_is_found_by_its_whole_id_only,
                every_way_to_close_a_hold_is_recorded,
                decided_holds_are_listed_by_when_they_were_decided,
                changes_of_an_open_hold_are_visible,
                news_from_an_outside_job_is_visible,
                ;
            sessions:
                a_session_is_made_by_its_first_run,
                an_unknown_session_is_none,
                metadata_change_only_as_they_were_read,
                a_session_is_closed_for_good,
                sessions_are_listed_newest_first,
                a_session_belongs_to_its_user,
                a_run_begun_without_a_session_has_its_own,
                a_second_run_in_a_runs_own_session_finds_the_first,
                a_runs_own_session_is_changed_and_closed,
                anothers_session_of_the_same_name_is_another,
                tenants_are_listed,
                ;
            counts:
                everything_is_counted,
                counts_follow_every_append,
                the_oldest_hold_is_the_oldest_that_is_open,
                counts_belong_to_their_tenant,
                a_refused_append_counts_nothing,
                ;
            quarantine:
                a_run_put_aside_is_never_due_and_takes_nothing,
                a_run_put_aside_is_listed_apart,
                a_run_put_aside_keeps_its_facts_and_its_log,
                ;
            audit_entries:
                an_entry_is_kept_with_the_next_number,
                entries_added_at_the_same_moment_are_all_kept,
                entries_of_rows_are_in_the_same_chain,
                ;
            credentials:
                a_credential_is_found_by_its_whole_prefix,
                a_credential_is_never_overwritten,
                a_tenant_lists_its_own_credentials_in_order,
                a_credential_is_revoked_once,
                a_credential_expires_no_later_than_it_was_told,
                ;
            key_notes:
                a_noted_key_says_the_last_that_was_noted,
                a_note_about_no_run_is_left_out,
                a_noted_key_guards_like_any_other,
                ;
            sealed:
                a_sealed_secret_is_found_by_its_whole_name,
                a_sealed_secret_is_changed_by_whoever_read_the_latest,
                ;
            nodes:
                a_node_that_is_alone_has_all_shards,
                a_node_is_listed_while_it_says_so,
                a_node_that_left_is_not_listed,
                a_shared_clock_goes_on_if_there_is_one,
                ;
            notices:
                a_notice_is_due_at_its_time,
                a_run_has_one_notice_for_each_subscription,
                every_commit_that_puts_a_notice_is_counted,
                a_delivered_notice_is_gone,
                a_delivered_notice_with_more_to_tell_goes_on,
                a_failed_notice_waits_and_counts,
                a_notice_that_failed_half_way_goes_on_from_there,
                notices_of_a_busy_subscription_are_left_out,
                a_notice_that_is_given_up_stays_out_of_the_way,
                notices_come_longest_due_first,
                notices_take_turns_between_owners,
                a_letter_sent_again_keeps_its_owner,
                notices_belong_to_the_shard_of_their_run,
                an_unknown_notice_is_settled_without_effect,
                ;
            subscriptions:
                a_subscription_is_kept_as_it_is,
                subscriptions_are_listed_and_counted_by_owner,
                an_append_tells_those_who_listen,
                only_the_wanted_kinds_are_told,
                a_change_counts_only_for_what_was_read,
                a_deleted_subscription_hears_nothing_more,
                what_was_given_up_is_listed_and_sent_again,
                a_letter_sent_again_goes_before_what_came_later,
                none_is_missed_while_others_append,
                ;
            claims:
                a_new_run_is_due_at_once,
                the_longest_due_comes_first,
                a_backlog_of_one_agent_does_not_starve_another,
                an_agent_at_its_limit_is_skipped,
                a_claim_takes_no_more_than_its_limit,
                a_node_claims_from_its_shards_only,
                a_small_limit_still_finds_the_nodes_own_shard,
                a_held_run_without_a_deadline_is_never_due,
                a_deadline_makes_a_held_run_due,
                a_decision_makes_a_held_run_due,
                a_retry_is_due_at_its_instant,
                a_run_that_is_over_is_not_due,
                ;
            leases:
                a_live_lease_keeps_others_away,
                a_lease_that_ran_out_is_taken_over,
                a_renewed_lease_lasts,
                a_released_run_is_due_when_its_row_says,
                a_released_run_with_nothing_to_do_is_not_due,
                an_append_takes_the_lease,
                an_append_keeps_the_lease,
                an_append_gives_the_lease_back,
                a_wake_makes_a_held_run_due,
                a_wake_is_given_back_with_the_lease,
                a_wake_of_an_unknown_run_does_nothing,
                a_wake_while_leased_is_not_forgotten,
                a_wake_in_the_append_that_moves_the_run_is_not_forgotten,
                ;
            odd_payloads:
                odd_texts_come_back_byte_for_byte,
                json_keeps_its_bytes,
                a_huge_text_is_stored,
                a_large_link_is_stored,
                the_longest_names_are_stored,
                odd_keys_counters_and_subscriptions_are_kept_apart,
                odd_audiences_and_metadata_are_kept,
                sixty_four_calls_in_a_turn,
                ;
            erasing:
                an_erased_run_keeps_its_chain_and_loses_its_contents,
                a_run_that_does_not_say_so_is_not_erased,
                erasing_twice_changes_nothing,
                what_could_not_be_told_goes_with_the_contents,
                ended_runs_are_listed_while_they_have_their_contents,
                runs_of_some_agents_are_kept_for_longer_or_not_as_long,
                what_says_that_it_is_erased_and_is_not_is_listed,
                what_waits_to_be_told_keeps_its_contents,
                ended_runs_are_listed_to_the_last_however_many_there_are,
                ;
            concurrency:
                one_of_many_appends_wins_each_sequence,
                appends_to_different_runs_are_all_written,
                counters_stay_exact,
                a_budget_is_never_exceeded,
                a_key_is_used_once,
                no_run_is_claimed_by_two_nodes,
                readers_see_whole_appends,
                a_run_that_is_appended_to_while_it_is_claimed_is_whole,
                a_hold_that_is_decided_while_it_is_looked_for_is_found,
                ;
            lost_answers:
                a_lost_answer_is_settled_by_the_link,
                a_lost_answer_may_hide_a_conflict,
                a_lost_answer_of_a_new_run_is_settled_too,
                a_run_survives_any_number_of_lost_answers,
                ;
            differential:
                every_answer_is_that_of_the_memory_store,
                ;
        }
    };
}

/// The tests of [`conformance!`], by theme.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_cases {
    ($factory:path; $($theme:ident: $($case:ident),* $(,)? ;)*) => {
        $(mod $theme {
            $(#[test]
            fn $case() {
                let factory: $crate::conformance::Factory = $factory;
                $crate::conformance::$theme::$case(&factory);
            })*
        })*
    };
}

#[cfg(test)]
mod tests {
    /// A case that is written but not listed would never run.
    #[test]
    fn every_case_is_listed() {
        let listed = include_str!("conformance.rs");
        let themes = [
            include_str!("conformance/appending.rs"),
            include_str!("conformance/guards.rs"),
            include_str!("conformance/puts.rs"),
            include_str!("conformance/run_lists.rs"),
            include_str!("conformance/hold_lists.rs"),
            include_str!("conformance/sessions.rs"),
            include_str!("conformance/audit_entries.rs"),
            include_str!("conformance/credentials.rs"),
            include_str!("conformance/sealed.rs"),
            include_str!("conformance/nodes.rs"),
            include_str!("conformance/counts.rs"),
            include_str!("conformance/quarantine.rs"),
            include_str!("conformance/notices.rs"),
            include_str!("conformance/subscriptions.rs"),
            include_str!("conformance/claims.rs"),
            include_str!("conformance/leases.rs"),
            include_str!("conformance/odd_payloads.rs"),
            include_str!("conformance/erasing.rs"),
            include_str!("conformance/concurrency.rs"),
            include_str!("conformance/lost_answers.rs"),
            include_str!("conformance/differential.rs"),
        ];
        for case in themes.iter().flat_map(|source| source.lines()) {
            let Some(name) =
                case.strip_prefix("pub fn ").and_then(|rest| rest.strip_suffix("(factory: &Factory) {"))
            else {
                continue;
            };
            assert!(listed.contains(&format!(" {name},\n")), "{name} is not in the list of the macro");
        }
    }
}
