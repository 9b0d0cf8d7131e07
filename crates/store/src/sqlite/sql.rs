//! Every statement of the SQLite store, in one place, so that a test can read the plan of each.
//!
//! No other file of this store contains SQL that a request can run. The columns are explained in `migrations/`.

/// Number of an interned text.
pub(super) const NAME_NUMBER: &str = "SELECT no FROM names WHERE text = ?1";
/// An interned text by its number.
pub(super) const NAME_TEXT: &str = "SELECT text FROM names WHERE no = ?1";
/// A new interned text.
pub(super) const NAME_ADD: &str = "INSERT INTO names (text) VALUES (?1)";
/// Changes when another connection has changed the file.
pub(super) const DATA_VERSION: &str = "PRAGMA data_version";
/// A tenant seen for the first time.
pub(super) const TENANT_ADD: &str =
    "INSERT INTO tenants (tenant, tag, created_at) VALUES (?1, ?2, ?3) ON CONFLICT (tenant) DO NOTHING";

/// A conversation's number and whether it is closed.
pub(super) const SESSION_NUMBER: &str =
    "SELECT no, closed FROM sessions WHERE tenant = ?1 AND agent = ?2 AND session = ?3 AND owner = ?4";
/// A new conversation.
pub(super) const SESSION_ADD: &str = "INSERT INTO sessions (no, tenant, agent, session, owner, created_at, updated_at) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6)";
/// A run that has a conversation to itself.
pub(super) const RUN_OWN_SESSION: &str =
    "SELECT no, agent, owner, started_at FROM runs WHERE id = ?1 AND tenant = ?2 AND session = 0";
/// It has a row now.
pub(super) const RUN_SHARES_SESSION: &str = "UPDATE runs SET session = no WHERE no = ?1";
/// Runs that may have a conversation to themselves, newest first.
pub(super) const OWN_SESSIONS: &str = "SELECT no, id, tenant, agent, owner, started_at, session FROM runs \
     WHERE no < ?1 ORDER BY no DESC LIMIT ?2";
/// Those of a user.
pub(super) const OWN_SESSIONS_BY_OWNER: &str = "SELECT no, id, tenant, agent, owner, started_at, session FROM runs \
     WHERE tenant = ?3 AND owner = ?4 AND no < ?1 ORDER BY no DESC LIMIT ?2";
/// A conversation by its name.
pub(super) const SESSION_ROW: &str = "SELECT metadata, created_at, updated_at, closed FROM sessions \
     WHERE tenant = ?1 AND agent = ?2 AND session = ?3 AND owner = ?4";
/// Conversations, newest first.
pub(super) const SESSIONS_ALL: &str = "SELECT no, tenant, agent, session, metadata, created_at, updated_at, closed, \
     owner FROM sessions WHERE no < ?1 ORDER BY no DESC LIMIT ?2";
/// Conversations of a user, newest first.
pub(super) const SESSIONS_BY_OWNER: &str = "SELECT no, tenant, agent, session, metadata, created_at, updated_at, \
     closed, owner FROM sessions WHERE tenant = ?3 AND owner = ?4 AND no < ?1 ORDER BY no DESC LIMIT ?2";
/// Conversations of a name with an agent, newest first.
pub(super) const SESSIONS_BY_NAME: &str = "SELECT no, tenant, agent, session, metadata, created_at, updated_at, \
     closed, owner FROM sessions WHERE tenant = ?3 AND agent = ?4 AND session = ?5 AND no < ?1 \
     ORDER BY no DESC LIMIT ?2";
/// Other metadata, if they still are what the caller read.
pub(super) const SESSION_METADATA: &str =
    "UPDATE sessions SET metadata = ?3, updated_at = ?4 WHERE no = ?1 AND coalesce(metadata, '{}') = ?2";
/// No more runs in a conversation.
pub(super) const SESSION_CLOSE: &str = "UPDATE sessions SET closed = 1 WHERE no = ?1";
/// What the audit says of a conversation.
pub(super) const SESSION_NOW: &str = "SELECT coalesce(metadata, '{}'), closed FROM sessions WHERE no = ?1";
/// Tenants, by number.
pub(super) const TENANTS: &str = "SELECT n.text FROM tenants t JOIN names n ON n.no = t.tenant WHERE t.tenant > ?1 \
     ORDER BY t.tenant";

/// What an append compares and what it needs to know of a run.
pub(super) const RUN_PLACE: &str = "SELECT no, seq, head, lease_node, lease_until, wake_at, due_at, phase, \
     quarantined FROM runs WHERE id = ?1";
/// A new run.
pub(super) const RUN_ADD: &str = "INSERT INTO runs (no, id, tenant, agent, session, owner, driver, started_at, parent, \
     inbox, inbox_facts, priority, seq, at, head, definition, phase, claimable_at, fold, lease_node, lease_until, \
     due_at, state, packed) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, \
     ?23, ?24) ON CONFLICT (id) DO NOTHING";
/// The number of the next new run.
pub(super) const RUN_NEXT: &str = "SELECT coalesce(max(no), 0) + 1 FROM runs";
/// A run after an append.
pub(super) const RUN_UPDATE: &str = "UPDATE runs SET seq = ?2, at = ?3, head = ?4, definition = ?5, phase = ?6, \
     claimable_at = ?7, fold = ?8, lease_node = ?9, lease_until = ?10, wake_at = ?11, due_at = ?12, \
     state = ?13, packed = ?14 WHERE no = ?1";
/// A run's lease alone.
pub(super) const RUN_LEASE: &str =
    "UPDATE runs SET lease_node = ?2, lease_until = ?3, wake_at = ?4, due_at = ?5 WHERE no = ?1";
/// Columns of a whole run, in the order that `rows.rs` reads them.
macro_rules! run_columns {
    () => {
        "no, id, tenant, agent, session, owner, driver, started_at, parent, inbox, inbox_facts, priority, seq, at, \
         head, definition, fold, lease_node, lease_until, state, quarantined, phase, packed"
    };
}
/// What a run's row does not say itself, behind its columns: the name of its conversation, the hash of its last link.
macro_rules! run_joins {
    () => {
        ", (SELECT s.session FROM sessions s WHERE s.no = runs.session), (SELECT l.hash FROM links l \
         WHERE l.key BETWEEN runs.no << 20 AND (runs.no << 20) + 1048575 ORDER BY l.key DESC LIMIT 1)"
    };
}
/// A run by its id.
pub(super) const RUN_BY_ID: &str =
    concat!("SELECT ", run_columns!(), run_joins!(), " FROM runs WHERE id = ?1");
/// What never changes of a run, in the places of [`RUN_BY_ID`]; its fold, however large it is, is not looked at.
pub(super) const RUN_FACTS: &str = "SELECT no, id, tenant, agent, session, owner, driver, started_at, parent, inbox, inbox_facts, priority, seq, at, \
     head, definition, fold, lease_node, lease_until, '', NULL, phase, NULL, \
     (SELECT s.session FROM sessions s WHERE s.no = runs.session) FROM runs WHERE id = ?1";
/// A run by its number.
pub(super) const RUN_BY_NUMBER: &str =
    concat!("SELECT ", run_columns!(), run_joins!(), " FROM runs WHERE no = ?1");
/// A run by its id, as a page of runs.
pub(super) const RUNS_BY_ID: &str =
    concat!("SELECT ", run_columns!(), " FROM runs WHERE id = ?3 AND no < ?1 ORDER BY no DESC LIMIT ?2");
/// Runs, newest first.
pub(super) const RUNS_ALL: &str =
    concat!("SELECT ", run_columns!(), " FROM runs WHERE no < ?1 ORDER BY no DESC LIMIT ?2");
/// Runs of an agent, newest first.
pub(super) const RUNS_BY_AGENT: &str = concat!(
    "SELECT ",
    run_columns!(),
    " FROM runs WHERE tenant = ?3 AND agent = ?4 AND no < ?1 ORDER BY no DESC LIMIT ?2"
);
/// Runs of a conversation, newest first.
pub(super) const RUNS_BY_SESSION: &str = concat!(
    "SELECT ",
    run_columns!(),
    " FROM runs WHERE session = ?3 AND session <> 0 AND no < ?1 ORDER BY no DESC LIMIT ?2"
);
/// Runs of the conversations of a name, newest first.
pub(super) const RUNS_BY_SESSION_NAME: &str = concat!(
    "SELECT ",
    run_columns!(),
    " FROM runs INDEXED BY runs_by_session WHERE session IN (SELECT s.no FROM sessions s WHERE s.tenant = ?3 AND s.agent = ?4 AND s.session = ?5) \
     AND session <> 0 AND no < ?1 ORDER BY no DESC LIMIT ?2"
);
/// Runs of a user, newest first.
pub(super) const RUNS_BY_OWNER: &str = concat!(
    "SELECT ",
    run_columns!(),
    " FROM runs WHERE tenant = ?3 AND owner = ?4 AND no < ?1 ORDER BY no DESC LIMIT ?2"
);
/// Runs of an inbox, newest first.
pub(super) const RUNS_BY_INBOX: &str = concat!(
    "SELECT ",
    run_columns!(),
    " FROM runs WHERE tenant = ?3 AND inbox = ?4 AND inbox IS NOT NULL AND no < ?1 ORDER BY no DESC LIMIT ?2"
);
/// How many runs the inboxes of a tenant have in which phase, and how many of those were quarantined.
pub(super) const INBOX_COUNTS: &str = "SELECT names.text, phase, quarantined IS NOT NULL, count(*) FROM runs \
     JOIN names ON names.no = runs.inbox WHERE tenant = ?1 AND inbox IS NOT NULL GROUP BY 1, 2, 3";
/// Runs that workers of an inbox may claim.
pub(super) const RUNS_CLAIMABLE: &str = concat!(
    "SELECT ",
    run_columns!(),
    " FROM runs WHERE tenant = ?1 AND inbox = ?2 AND claimable_at IS NOT NULL AND claimable_at <= ?3 \
     ORDER BY priority DESC, no LIMIT ?4"
);
/// Those of them that an agent of this server drives itself.
pub(super) const RUNS_CLAIMABLE_BY_AGENT: &str = concat!(
    "SELECT ",
    run_columns!(),
    " FROM runs WHERE tenant = ?1 AND inbox = ?2 AND claimable_at IS NOT NULL AND claimable_at <= ?3 \
     AND driver = 0 AND agent = ?5 ORDER BY priority DESC, no LIMIT ?4"
);
/// Those of them that are for a worker elsewhere. Its kinds are a JSON array of texts, in which a quoted text cannot be
/// mistaken for a part of another.
pub(super) const RUNS_CLAIMABLE_BY_WORKER: &str = concat!(
    "SELECT ",
    run_columns!(),
    " FROM runs WHERE tenant = ?1 AND inbox = ?2 AND claimable_at IS NOT NULL AND claimable_at <= ?3 \
     AND driver = 1 AND coalesce(inbox_facts ->> '$.target_agent', ?5) = ?5 \
     AND (?6 = '[]' OR instr(?6, inbox_facts -> '$.type') > 0) ORDER BY priority DESC, no LIMIT ?4"
);
/// Runs with outside jobs, newest first.
pub(super) const RUNS_WITH_JOBS: &str = concat!(
    "SELECT ",
    run_columns!(),
    " FROM runs WHERE no IN (SELECT DISTINCT run FROM external_holds WHERE tenant = ?3 AND run < ?1 \
     ORDER BY run DESC LIMIT ?2) ORDER BY no DESC"
);
/// Runs in the order in which they began, with their phase, to count them.
pub(super) const RUNS_SCAN: &str =
    concat!("SELECT ", run_columns!(), " FROM runs WHERE no > ?1 ORDER BY no LIMIT ?2");
/// Puts a run aside.
pub(super) const RUN_QUARANTINE: &str = "UPDATE runs SET quarantined = ?2, lease_node = NULL, \
     lease_until = NULL, wake_at = NULL, due_at = NULL WHERE no = ?1";
/// The tenant and the phase of a run that is not quarantined.
pub(super) const RUN_PHASE: &str = "SELECT tenant, phase FROM runs WHERE no = ?1 AND quarantined IS NULL";
/// Runs in the order in which they began, for an audit.
pub(super) const RUNS_AFTER: &str = "SELECT no, id FROM runs WHERE no > ?1 ORDER BY no LIMIT ?2";
/// A run's number.
pub(super) const RUN_NUMBER: &str = "SELECT no FROM runs WHERE id = ?1";
/// A run's id.
pub(super) const RUN_ID: &str = "SELECT id FROM runs WHERE no = ?1";
/// The name of a conversation by its number.
pub(super) const SESSION_NAME: &str = "SELECT session FROM sessions WHERE no = ?1";

/// One append's events.
pub(super) const LINK_ADD: &str =
    "INSERT INTO links (key, count, at, actor, hash, salt, payload) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
/// The same, sealed: without its salt, which is sealed with it, and with the commitment that follows from neither.
pub(super) const LINK_ADD_SEALED: &str = "INSERT INTO links (key, count, at, actor, hash, payload, commitment) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
/// The links of a run, from the one that holds an event on.
pub(super) const LINKS_FROM: &str = "SELECT l.key, l.count, l.at, l.actor, l.hash, l.salt, l.payload, l.commitment \
     FROM (SELECT no << 20 AS base FROM runs WHERE id = ?1) r JOIN links l ON l.key BETWEEN coalesce((SELECT k.key \
     FROM links k WHERE k.key BETWEEN r.base AND r.base + ?2 ORDER BY k.key DESC LIMIT 1), r.base + ?2) \
     AND r.base + 1048575 ORDER BY l.key LIMIT ?3";
/// The links of a run between two keys.
pub(super) const LINKS: &str = "SELECT key, count, at, actor, hash, salt, payload, commitment FROM links \
     WHERE key BETWEEN ?1 AND ?2 ORDER BY key LIMIT ?3";
/// The hash of a run's last link.
pub(super) const LINK_LAST: &str =
    "SELECT hash FROM links WHERE key BETWEEN ?1 AND ?2 ORDER BY key DESC LIMIT 1";
/// Deletes the contents of a link and keeps its commitment.
pub(super) const LINK_ERASE: &str =
    "UPDATE links SET salt = NULL, payload = NULL, commitment = ?2 WHERE key = ?1";

/// A large value.
pub(super) const BLOB_ADD: &str =
    "INSERT INTO blobs (run, digest, value) VALUES (?1, ?2, ?3) ON CONFLICT (run, digest) DO NOTHING";
/// The same, sealed.
pub(super) const BLOB_ADD_SEALED: &str = "INSERT INTO blobs (run, digest, value, sealed) VALUES (?1, ?2, '', ?3) \
     ON CONFLICT (run, digest) DO NOTHING";
/// A large value by its name, where some are sealed.
pub(super) const BLOB_SEALED: &str = "SELECT value, sealed FROM blobs WHERE run = ?1 AND digest = ?2";
/// Whether the fold of a run is sealed.
pub(super) const RUN_IS_SEALED: &str =
    "SELECT coalesce(substr(packed, 1, 1) = x'03', 0) FROM runs WHERE id = ?1";
/// The newest runs, and whether their folds are sealed.
pub(super) const NEWEST_SEALED: &str =
    "SELECT id, coalesce(substr(packed, 1, 1) = x'03', 0) FROM runs WHERE no < ?1 ORDER BY no DESC LIMIT ?2";
/// Which file has the keys of payloads.
pub(super) const PAYLOAD_KEYS: &str = "SELECT ring, wrapped_by FROM payload_keys WHERE only = 1";
/// It has them from now on.
pub(super) const PAYLOAD_KEYS_SET: &str = "INSERT INTO payload_keys (only, ring, wrapped_by) VALUES (1, ?1, ?2) \
     ON CONFLICT (only) DO UPDATE SET wrapped_by = excluded.wrapped_by WHERE wrapped_by <> excluded.wrapped_by";
/// A large value by its name.
pub(super) const BLOB: &str = "SELECT value FROM blobs WHERE run = ?1 AND digest = ?2";
/// Deletes the large values of a run.
pub(super) const BLOBS_ERASE: &str = "DELETE FROM blobs WHERE run = ?1";
/// Deletes the dead letters of a run.
pub(super) const LETTERS_ERASE: &str = "DELETE FROM dead_letters WHERE run = ?1";
/// The contents of a run are gone.
pub(super) const RUN_ERASED: &str = "UPDATE runs SET erased = 1 WHERE no = ?1";
/// Runs as they began, and which of them have ended and are old, have their contents, and have nothing left to tell. What a run says of itself is in its
/// state, where no text can look like it: quotes inside texts are escaped.
pub(super) const RUNS_ENDED: &str = "SELECT no, id, CASE WHEN tenant <> ?3 OR phase < 8 OR erased <> 0 OR quarantined IS NOT NULL \
     OR EXISTS (SELECT 1 FROM notices n WHERE n.run = runs.no AND n.due_at IS NOT NULL) THEN 0 \
     WHEN state LIKE '%\"erased\":true%' OR substr(packed, 1, 1) = x'02' THEN 1 WHEN at < ?4 THEN 2 ELSE 0 END, \
     started_at < ?4, agent, at FROM runs WHERE no > ?1 ORDER BY no LIMIT ?2";

/// A new hold.
pub(super) const HOLD_ADD: &str = "INSERT INTO holds (run, call, secret, tenant, agent, tool, kind, audience, \
     inbox, expires_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
/// An open hold has another deadline.
pub(super) const HOLD_DEADLINE: &str =
    "UPDATE holds SET expires_at = ?2 WHERE no = ?1 AND expires_at IS NOT ?2";
/// Open holds whose deadlines nobody has looked at.
pub(super) const HOLDS_WITHOUT_LOOK: &str = "SELECT no, run, call, secret, kind FROM holds WHERE no > 0 AND closed = 0 AND expires_at IS NULL ORDER BY no LIMIT ?1";
/// The holds of one call: number, secret, audience, record.
pub(super) const HOLDS_OF_CALL: &str =
    "SELECT no, secret, audience, record FROM holds WHERE run = ?1 AND call = ?2 ORDER BY no";
/// The holds of one call of a run that is named by its id.
pub(super) const HOLDS_OF_RUN_CALL: &str = "SELECT h.no, h.secret, h.audience, h.record FROM runs r \
     JOIN holds h ON h.run = r.no WHERE r.id = ?1 AND h.call = ?2 ORDER BY h.no";
/// A hold that has its decision.
pub(super) const HOLD_CLOSE: &str = "UPDATE holds SET closed = 1, audience = NULL, record = ?2 WHERE no = ?1";
/// A new hold that waits for an outside system, as it is found by the view `pending_tool_calls`.
pub(super) const EXTERNAL_ADD: &str = "INSERT INTO external_holds (hold, tenant, run, session, status, timeout) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
/// How it stands now.
pub(super) const EXTERNAL_SET: &str = "UPDATE external_holds SET status = ?2, timeout = ?3 WHERE hold = ?1";
/// Those of a run are gone with its contents.
pub(super) const EXTERNAL_ERASE: &str = "DELETE FROM external_holds \
     WHERE tenant = (SELECT tenant FROM runs WHERE no = ?1) AND run = ?1";
/// Who sees a hold, so that the rows can be deleted with it.
pub(super) const HOLD_AUDIENCE: &str = "UPDATE holds SET audience = ?2 WHERE no = ?1";
/// The next agent of a tenant with open holds.
pub(super) const HOLDS_NEXT_AGENT: &str = "SELECT agent FROM holds \
     WHERE tenant = ?1 AND closed = 0 AND agent > ?2 ORDER BY agent LIMIT 1";
/// The next tenant with open holds.
pub(super) const HOLDS_NEXT_TENANT: &str = "SELECT tenant FROM holds \
     WHERE tenant > ?1 AND closed = 0 ORDER BY tenant LIMIT 1";
/// The kinds of an agent's open holds, oldest first.
pub(super) const HOLD_KINDS_OF_AGENT: &str = "SELECT no, kind FROM holds \
     WHERE tenant = ?1 AND agent = ?2 AND closed = 0 ORDER BY no";
/// The oldest open hold of an agent that is of a kind.
pub(super) const HOLD_FIRST_OF_KIND: &str = "SELECT no, run, call, secret, kind FROM holds \
     WHERE tenant = ?1 AND agent = ?4 AND closed = 0 AND no > ?2 AND kind = ?3 ORDER BY no LIMIT 1";
/// The numbers of an agent's open holds, oldest first.
pub(super) const HOLD_NUMBERS_BY_AGENT: &str = "SELECT no FROM holds \
     WHERE tenant = ?1 AND agent = ?4 AND closed = 0 AND no > ?2 ORDER BY no LIMIT ?3";
/// Open holds of an agent.
pub(super) const HOLDS_BY_AGENT: &str = "SELECT no, run, call, secret, kind FROM holds \
     WHERE tenant = ?1 AND agent = ?4 AND closed = 0 AND no > ?2 ORDER BY no LIMIT ?3";
/// Open holds of a tool.
pub(super) const HOLDS_BY_TOOL: &str = "SELECT no, run, call, secret, kind FROM holds \
     WHERE tenant = ?1 AND tool = ?4 AND closed = 0 AND no > ?2 ORDER BY no LIMIT ?3";
/// Open holds of an inbox.
pub(super) const HOLDS_BY_INBOX: &str = "SELECT no, run, call, secret, kind FROM holds \
     WHERE tenant = ?1 AND inbox = ?4 AND inbox IS NOT NULL AND closed = 0 AND no > ?2 ORDER BY no LIMIT ?3";
/// Open holds with a deadline, the earliest first; after the one with number ?2.
pub(super) const HOLDS_DATED: &str = "SELECT no, run, call, secret, kind FROM holds \
     WHERE tenant = ?1 AND closed = 0 AND expires_at > 0 \
     AND (expires_at, no) > (ifnull((SELECT c.expires_at FROM holds c WHERE c.no = ?2), 0), ?2) \
     ORDER BY expires_at, no LIMIT ?3";
/// Open holds of a conversation: few runs, few holds each.
pub(super) const HOLDS_BY_SESSION: &str = "SELECT h.no, h.run, h.call, h.secret, h.kind FROM runs r \
     JOIN holds h ON h.run = r.no \
     WHERE h.tenant = ?1 AND r.session <> 0 AND r.session IN (SELECT s.no FROM sessions s WHERE s.tenant = ?1 AND s.agent = ?4 \
     AND s.session = ?5) AND h.closed = 0 AND h.no > ?2 ORDER BY h.no LIMIT ?3";
/// Open holds of a run.
pub(super) const HOLDS_BY_RUN: &str = "SELECT no, run, call, secret, kind FROM holds \
     WHERE tenant = ?1 AND run = ?4 AND closed = 0 AND no > ?2 ORDER BY no LIMIT ?3";
/// Decided holds, the latest decision first.
pub(super) const HOLDS_DECIDED: &str = "SELECT CASE WHEN json_valid(h.record) THEN json_extract(h.record, '$.closed_at') END, \
     r.id, h.call, h.secret, h.record FROM holds h JOIN runs r ON r.no = h.run WHERE h.tenant = ?1 AND h.closed = 1 \
     AND CASE WHEN json_valid(h.record) THEN json_extract(h.record, '$.closed_at') END >= ?2 \
     AND CASE WHEN json_valid(h.record) THEN json_extract(h.record, '$.closed_at') END < ?3 \
     ORDER BY CASE WHEN json_valid(h.record) THEN json_extract(h.record, '$.closed_at') END DESC, h.no DESC LIMIT ?4";
/// One open hold by its number.
pub(super) const HOLD_BY_NUMBER: &str =
    "SELECT no, run, call, secret, kind FROM holds WHERE no = ?1 AND closed = 0";
/// The same, if it has no deadline.
pub(super) const HOLD_UNDATED_BY_NUMBER: &str = "SELECT no, run, call, secret, kind FROM holds \
     WHERE no = ?1 AND closed = 0 AND ifnull(expires_at, 0) = 0";

/// Somebody may see a hold.
pub(super) const AUDIENCE_ADD: &str =
    "INSERT INTO audience (who, hold) VALUES (?1, ?2) ON CONFLICT (who, hold) DO NOTHING";
/// Several people may see a hold.
pub(super) const AUDIENCE_ADD_ALL: &str = "INSERT INTO audience (who, hold) SELECT value, ?2 FROM json_each(?1) WHERE true \
     ON CONFLICT (who, hold) DO NOTHING";
/// Several people no longer see a hold.
pub(super) const AUDIENCE_REMOVE_ALL: &str =
    "DELETE FROM audience WHERE hold = ?2 AND who IN (SELECT value FROM json_each(?1))";
/// Somebody no longer sees a hold.
pub(super) const AUDIENCE_REMOVE: &str = "DELETE FROM audience WHERE who = ?1 AND hold = ?2";
/// The holds somebody may see.
pub(super) const AUDIENCE_HOLDS: &str =
    "SELECT hold FROM audience WHERE who = ?1 AND hold > ?2 ORDER BY hold LIMIT ?3";
/// Whether somebody may see a hold.
pub(super) const AUDIENCE_HAS: &str = "SELECT 1 FROM audience WHERE who = ?1 AND hold = ?2";

/// Nobody needs to look at a run.
pub(super) const DUE_CLEAR: &str = "UPDATE runs SET due_at = NULL WHERE no = ?1";
/// The next agent with due runs.
pub(super) const DUE_NEXT_AGENT: &str = "SELECT tenant, agent FROM runs INDEXED BY runs_due \
     WHERE due_at IS NOT NULL AND (tenant, agent) > (?1, ?2) ORDER BY tenant, agent LIMIT 1";
/// The due runs of an agent, the longest due first. Those of a newer fold are not ours, and must not stand in the way
/// of those behind them.
pub(super) const DUE_OF_AGENT: &str = "SELECT no, id, due_at FROM runs INDEXED BY runs_due \
     WHERE tenant = ?1 AND agent = ?2 AND due_at IS NOT NULL AND due_at <= ?3 AND fold <= ?5 \
     ORDER BY due_at, no LIMIT ?4";

/// A new notice, or the news that there is more to tell.
pub(super) const NOTICE_ADD: &str = "INSERT INTO notices (shard, due_at, subscription, run, first_seq, latest, owner) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) \
     ON CONFLICT (run, subscription) WHERE due_at IS NOT NULL DO UPDATE SET latest = max(latest, excluded.latest)";
/// The next owner of notices.
pub(super) const NOTICES_NEXT_OWNER: &str =
    "SELECT owner FROM notices WHERE due_at IS NOT NULL AND owner > ?1 ORDER BY owner LIMIT 1";
/// The notices of an owner whose time has come, of runs of a fold that this program knows.
pub(super) const NOTICES_DUE: &str = "SELECT n.no, n.shard, n.subscription, n.run, n.first_seq, n.attempts, n.due_at \
     FROM notices n LEFT JOIN runs r ON r.no = n.run WHERE n.owner = ?4 AND n.due_at IS NOT NULL AND n.due_at <= ?1 \
     AND coalesce(r.fold, 0) <= ?3 ORDER BY n.due_at, n.no LIMIT ?2";
/// Everything was delivered.
pub(super) const NOTICE_DONE: &str = "DELETE FROM notices WHERE no = ?1 AND latest <= ?2";
/// There is more to tell.
pub(super) const NOTICE_MORE: &str =
    "UPDATE notices SET first_seq = max(first_seq, ?2), attempts = 0 WHERE no = ?1";
/// It is tried again. Tries count for the event that they begin with.
pub(super) const NOTICE_RETRY: &str = "UPDATE notices SET due_at = ?2, \
     attempts = CASE WHEN ?3 > first_seq THEN 1 ELSE attempts + 1 END, first_seq = max(first_seq, ?3) WHERE no = ?1";
/// It is given up: it becomes a dead letter.
pub(super) const NOTICE_BURY: &str = "INSERT INTO dead_letters \
     (tenant, shard, subscription, run, first_seq, latest, attempts, at, why, owner) \
     SELECT r.tenant, n.shard, n.subscription, n.run, max(n.first_seq, ?3), n.latest, \
     CASE WHEN ?3 > n.first_seq THEN 1 ELSE n.attempts + 1 END, ?2, ?4, n.owner \
     FROM notices n JOIN runs r ON r.no = n.run WHERE n.no = ?1";
/// It is no longer there.
pub(super) const NOTICE_REMOVE: &str = "DELETE FROM notices WHERE no = ?1";
/// A dead letter becomes a notice again; one that is there begins as early as the letter did.
pub(super) const DEAD_RESEND: &str = "INSERT INTO notices (shard, due_at, subscription, run, first_seq, latest, owner) \
     SELECT shard, ?3, subscription, run, first_seq, latest, owner FROM dead_letters WHERE no = ?1 AND tenant = ?2 \
     ON CONFLICT (run, subscription) WHERE due_at IS NOT NULL DO UPDATE SET due_at = excluded.due_at, attempts = 0, \
     first_seq = min(first_seq, excluded.first_seq), latest = max(latest, excluded.latest)";
/// A dead letter is gone.
pub(super) const DEAD_TAKE: &str = "DELETE FROM dead_letters WHERE no = ?1 AND tenant = ?2";
/// The dead letters of a subscription are gone.
pub(super) const DEAD_DELETE: &str = "DELETE FROM dead_letters WHERE tenant = ?1 AND subscription = ?2";
/// The dead letters of a subscription.
pub(super) const DEAD_LETTERS: &str = "SELECT no, subscription, run, first_seq, attempts, at, why FROM dead_letters \
     WHERE tenant = ?1 AND subscription = ?2 AND no > ?3 ORDER BY no LIMIT ?4";

/// A new subscription.
pub(super) const SUBSCRIPTION_ADD: &str = "INSERT INTO subscriptions (tenant, id, topic, wants, active, facts, owner) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT DO NOTHING";
/// Another one, if it still is what the caller read.
pub(super) const SUBSCRIPTION_CHANGE: &str = "UPDATE subscriptions SET wants = ?4, active = ?5, facts = ?6 \
     WHERE tenant = ?1 AND id = ?2 AND facts = ?3";
/// It is gone.
pub(super) const SUBSCRIPTION_DELETE: &str = "DELETE FROM subscriptions WHERE tenant = ?1 AND id = ?2";
/// A subscription by its id.
pub(super) const SUBSCRIPTION: &str =
    "SELECT id, topic, wants, active, facts, owner FROM subscriptions WHERE tenant = ?1 AND id = ?2";
/// The subscriptions of a tenant, by id.
pub(super) const SUBSCRIPTIONS: &str = "SELECT id, topic, wants, active, facts, owner FROM subscriptions \
     WHERE tenant = ?1 AND id > ?2 ORDER BY id LIMIT ?3";
/// The subscriptions of an owner, by id.
pub(super) const SUBSCRIPTIONS_OF: &str = "SELECT id, topic, wants, active, facts, owner FROM subscriptions \
     WHERE tenant = ?1 AND owner = ?4 AND id > ?2 ORDER BY id LIMIT ?3";
/// How many active subscriptions to agents or everything there are.
pub(super) const SUBSCRIPTIONS_BROAD: &str = "SELECT count(*) FROM subscriptions \
     WHERE tenant = ?1 AND active = 1 AND substr(topic, 1, 4) <> 'run '";
/// How many of those an owner has.
pub(super) const SUBSCRIPTIONS_BROAD_OF: &str = "SELECT count(*) FROM subscriptions \
     WHERE tenant = ?1 AND owner = ?2 AND active = 1 AND substr(topic, 1, 4) <> 'run '";
/// How many active subscriptions of a topic there are, of one owner or of all.
pub(super) const SUBSCRIPTIONS_TO: &str = "SELECT count(*) FROM subscriptions \
     WHERE tenant = ?1 AND topic = ?2 AND active = 1 AND (?3 IS NULL OR owner = ?3)";
/// Whether a tenant has subscriptions that count.
pub(super) const HAS_LISTENERS: &str = "SELECT 1 FROM subscriptions WHERE tenant = ?1 AND active = 1 LIMIT 1";
/// Who listens to a run.
pub(super) const LISTENERS: &str = "SELECT id, wants, owner FROM subscriptions \
     WHERE tenant = ?1 AND topic IN (?2, ?3, ?4) AND active = 1 ORDER BY id";

/// An idempotency key.
pub(super) const KEY_ADD: &str = "INSERT INTO keys (tenant, key, request, run, seq, expires_at) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (tenant, key) DO UPDATE SET request = excluded.request, \
     run = excluded.run, seq = excluded.seq, expires_at = excluded.expires_at";
/// An idempotency key that is noted; nothing is written when it says the same and is remembered for long enough.
pub(super) const KEY_NOTE: &str = "INSERT INTO keys (tenant, key, request, run, seq, expires_at) \
     VALUES (?1, ?2, ?3, ?4, 0, ?5) ON CONFLICT (tenant, key) DO UPDATE SET request = excluded.request, \
     run = excluded.run, seq = excluded.seq, expires_at = excluded.expires_at \
     WHERE keys.request <> excluded.request OR keys.expires_at < excluded.expires_at - ?6";
/// Forgets one.
pub(super) const KEY_REMOVE: &str = "DELETE FROM keys WHERE tenant = ?1 AND key = ?2";
/// What an idempotency key was used for.
pub(super) const KEY: &str = "SELECT request, run, seq, expires_at FROM keys WHERE tenant = ?1 AND key = ?2";
/// Keys in a range, the last first, with what they were used for.
pub(super) const KEYS_UNDER: &str = "SELECT k.key, k.request, r.id, k.seq, k.expires_at FROM keys k \
     JOIN runs r ON r.no = k.run WHERE k.tenant = ?1 AND k.key >= ?2 AND k.key < ?3 ORDER BY k.key DESC LIMIT ?4";
/// Forgets those whose time has passed.
pub(super) const KEYS_FORGET: &str = "DELETE FROM keys WHERE (tenant, key) IN \
     (SELECT tenant, key FROM keys WHERE expires_at <= ?1 LIMIT ?2)";

/// A counter.
pub(super) const COUNTER: &str = "SELECT value FROM counters WHERE tenant = ?1 AND name = ?2";
/// A counter after adding.
pub(super) const COUNTER_ADD: &str = "INSERT INTO counters (tenant, name, value) VALUES (?1, ?2, ?3) \
     ON CONFLICT (tenant, name) DO UPDATE SET value = value + excluded.value";

/// A definition.
pub(super) const DEFINITION_ADD: &str = "INSERT INTO definitions (tenant, digest, bytes) VALUES (?1, ?2, ?3) \
     ON CONFLICT (tenant, digest) DO NOTHING";
/// A definition by its name.
pub(super) const DEFINITION: &str = "SELECT bytes FROM definitions WHERE tenant = ?1 AND digest = ?2";

/// A new credential, unless its prefix is taken.
pub(super) const CREDENTIAL_ADD: &str = "INSERT INTO credentials (tenant, prefix, hash, facts, expires_at, revoked_at) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO NOTHING";
/// A credential by its prefix.
pub(super) const CREDENTIAL: &str =
    "SELECT tenant, prefix, hash, facts, expires_at, revoked_at FROM credentials WHERE prefix = ?1";
/// The credentials of a tenant.
pub(super) const CREDENTIALS: &str = "SELECT tenant, prefix, hash, facts, expires_at, revoked_at FROM credentials WHERE tenant = ?1 ORDER BY prefix";
/// No longer valid; the first instant stays.
pub(super) const CREDENTIAL_REVOKE: &str = "UPDATE credentials SET revoked_at = coalesce(revoked_at, ?3) \
     WHERE tenant = ?1 AND prefix = ?2";
/// Valid until then at most.
pub(super) const CREDENTIAL_EXPIRE: &str = "UPDATE credentials SET expires_at = min(coalesce(expires_at, ?3), ?3) \
     WHERE tenant = ?1 AND prefix = ?2";
/// A sealed secret.
pub(super) const SEALED: &str = "SELECT value FROM sealed WHERE tenant = ?1 AND name = ?2";
/// A new one, unless its name is taken.
pub(super) const SEALED_ADD: &str =
    "INSERT INTO sealed (tenant, name, value) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING";
/// Another one in its place, if it still is what the caller read.
pub(super) const SEALED_CHANGE: &str =
    "UPDATE sealed SET value = ?4 WHERE tenant = ?1 AND name = ?2 AND value = ?3";
/// None in its place, if it still is what the caller read.
pub(super) const SEALED_REMOVE: &str = "DELETE FROM sealed WHERE tenant = ?1 AND name = ?2 AND value = ?3";
/// The time of the machine that has the file.
pub(super) const TIME: &str = "SELECT CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER)";
/// One more entry of a tenant's audit.
pub(super) const AUDIT_ADD: &str =
    "INSERT INTO audit (tenant, no, at, entry, hash) VALUES (?1, ?2, ?3, ?4, ?5)";
/// The last entry of a tenant's audit.
pub(super) const AUDIT_LAST: &str = "SELECT no, hash FROM audit WHERE tenant = ?1 ORDER BY no DESC LIMIT 1";
/// An entry that was written before entries were tied together.
pub(super) const AUDIT_SEAL: &str = "UPDATE audit SET hash = ?3 WHERE tenant = ?1 AND no = ?2";
/// A page of a tenant's audit.
pub(super) const AUDIT_AFTER: &str =
    "SELECT no, at, entry, hash FROM audit WHERE tenant = ?1 AND no > ?2 ORDER BY no LIMIT ?3";
/// A page of everybody's audit.
pub(super) const AUDIT_ALL: &str = "SELECT a.tenant, n.text, a.no, a.at, a.entry, a.hash FROM audit a JOIN names n ON n.no = a.tenant \
     WHERE (a.tenant, a.no) > (?1, ?2) ORDER BY a.tenant, a.no LIMIT 500";

/// All of them, for the test that reads their plans.
#[cfg(test)]
pub(super) const ALL: &[&str] = &[
    NAME_NUMBER,
    NAME_TEXT,
    NAME_ADD,
    DATA_VERSION,
    TENANT_ADD,
    SESSION_NUMBER,
    SESSION_ADD,
    RUN_OWN_SESSION,
    RUN_SHARES_SESSION,
    OWN_SESSIONS,
    OWN_SESSIONS_BY_OWNER,
    SESSION_ROW,
    SESSIONS_ALL,
    SESSIONS_BY_OWNER,
    SESSIONS_BY_NAME,
    SESSION_METADATA,
    SESSION_CLOSE,
    SESSION_NOW,
    TENANTS,
    RUN_PLACE,
    RUN_ADD,
    RUN_NEXT,
    RUN_UPDATE,
    RUN_LEASE,
    RUN_BY_ID,
    RUN_FACTS,
    RUN_BY_NUMBER,
    RUNS_BY_ID,
    RUNS_ALL,
    RUNS_BY_AGENT,
    RUNS_BY_SESSION,
    RUNS_BY_SESSION_NAME,
    RUNS_BY_OWNER,
    RUNS_BY_INBOX,
    INBOX_COUNTS,
    RUNS_CLAIMABLE,
    RUNS_CLAIMABLE_BY_AGENT,
    RUNS_CLAIMABLE_BY_WORKER,
    RUNS_WITH_JOBS,
    RUNS_SCAN,
    RUN_QUARANTINE,
    RUN_PHASE,
    RUNS_AFTER,
    RUN_NUMBER,
    RUN_ID,
    SESSION_NAME,
    LINK_ADD,
    LINK_ADD_SEALED,
    LINKS_FROM,
    LINKS,
    LINK_LAST,
    LINK_ERASE,
    BLOB_ADD,
    BLOB_ADD_SEALED,
    BLOB_SEALED,
    RUN_IS_SEALED,
    NEWEST_SEALED,
    PAYLOAD_KEYS,
    PAYLOAD_KEYS_SET,
    BLOB,
    BLOBS_ERASE,
    LETTERS_ERASE,
    RUN_ERASED,
    RUNS_ENDED,
    HOLD_ADD,
    HOLD_DEADLINE,
    HOLDS_WITHOUT_LOOK,
    HOLDS_OF_CALL,
    HOLDS_OF_RUN_CALL,
    HOLD_CLOSE,
    EXTERNAL_ADD,
    EXTERNAL_SET,
    EXTERNAL_ERASE,
    HOLD_AUDIENCE,
    HOLDS_NEXT_AGENT,
    HOLDS_NEXT_TENANT,
    HOLD_KINDS_OF_AGENT,
    HOLD_FIRST_OF_KIND,
    HOLD_NUMBERS_BY_AGENT,
    HOLDS_BY_AGENT,
    HOLDS_BY_TOOL,
    HOLDS_BY_INBOX,
    HOLDS_DATED,
    HOLDS_BY_SESSION,
    HOLDS_BY_RUN,
    HOLDS_DECIDED,
    HOLD_BY_NUMBER,
    HOLD_UNDATED_BY_NUMBER,
    AUDIENCE_ADD,
    AUDIENCE_ADD_ALL,
    AUDIENCE_REMOVE_ALL,
    AUDIENCE_REMOVE,
    AUDIENCE_HOLDS,
    AUDIENCE_HAS,
    DUE_CLEAR,
    DUE_NEXT_AGENT,
    DUE_OF_AGENT,
    NOTICE_ADD,
    NOTICES_NEXT_OWNER,
    NOTICES_DUE,
    NOTICE_DONE,
    NOTICE_MORE,
    NOTICE_RETRY,
    NOTICE_BURY,
    NOTICE_REMOVE,
    DEAD_RESEND,
    DEAD_TAKE,
    DEAD_DELETE,
    DEAD_LETTERS,
    SUBSCRIPTION_ADD,
    SUBSCRIPTION_CHANGE,
    SUBSCRIPTION_DELETE,
    SUBSCRIPTION,
    SUBSCRIPTIONS,
    SUBSCRIPTIONS_OF,
    SUBSCRIPTIONS_BROAD,
    SUBSCRIPTIONS_BROAD_OF,
    SUBSCRIPTIONS_TO,
    HAS_LISTENERS,
    LISTENERS,
    KEY_ADD,
    KEY_NOTE,
    KEY_REMOVE,
    KEY,
    KEYS_UNDER,
    KEYS_FORGET,
    COUNTER,
    COUNTER_ADD,
    DEFINITION_ADD,
    DEFINITION,
    CREDENTIAL_ADD,
    CREDENTIAL,
    CREDENTIALS,
    CREDENTIAL_REVOKE,
    CREDENTIAL_EXPIRE,
    SEALED,
    SEALED_ADD,
    SEALED_CHANGE,
    SEALED_REMOVE,
    TIME,
    AUDIT_ADD,
    AUDIT_LAST,
    AUDIT_SEAL,
    AUDIT_AFTER,
    AUDIT_ALL,
];
