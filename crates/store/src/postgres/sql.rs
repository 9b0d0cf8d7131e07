//! Every statement of the Postgres store, in one place, so that a test can read the plan of each.
//!
//! No other file of this store contains SQL that a request can run. What a group of appends writes goes as arrays: one
//! statement for each table, whatever the number of appends. The columns are explained in `migrations/`.

/// Whether this server follows another one.
pub(super) const IS_STANDBY: &str = "SELECT pg_is_in_recovery()";
/// One node migrates, the others wait. The number is this product's alone.
pub(super) const MIGRATION_LOCK: &str = "SELECT pg_advisory_lock(5207143018117720)";
/// Whether there is a schema of ours.
pub(super) const HAS_HISTORY: &str = "SELECT to_regclass('refinery_schema_history') IS NOT NULL";
/// Its newest migration.
pub(super) const NEWEST_MIGRATION: &str = "SELECT max(version) FROM refinery_schema_history";
/// Whether there are tables that nobody of us made.
pub(super) const FOREIGN_TABLES: &str = "SELECT EXISTS (SELECT 1 FROM pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace)";
/// The highest number that orders anything.
pub(super) const HIGHEST_NUMBER: &str = "SELECT greatest((SELECT max(no) FROM runs), (SELECT max(no) FROM holds), \
     (SELECT max(no) FROM notices), (SELECT max(no) FROM dead_letters))";
/// The database's time in milliseconds since 1970.
pub(super) const TIME: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";

/// What appends compare and what they need to know of runs; nobody else changes them until the end.
pub(super) const RUNS_LOCK: &str = "SELECT id, no, tenant, agent, seq, head, lease_node, lease_until, wake_at, \
     wants_at, due_at, quarantined FROM runs WHERE id = ANY($1) ORDER BY id FOR UPDATE";
/// Fails unless these runs still are what a node remembers; nobody else changes them until the end.
pub(super) const RUNS_UNCHANGED: &str = "SELECT 1 / CASE WHEN (SELECT count(*) FROM (SELECT r.id FROM runs r \
     JOIN unnest($1::uuid[], $2::bigint[], $3::bytea[], $4::uuid[], $5::bigint[], $6::bigint[], $7::bigint[]) \
     AS n (id, seq, head, lease_node, lease_until, wake_at, due_at) ON r.id = n.id \
     WHERE r.seq = n.seq AND r.head = n.head AND r.lease_node IS NOT DISTINCT FROM n.lease_node \
     AND r.lease_until IS NOT DISTINCT FROM n.lease_until AND r.wake_at IS NOT DISTINCT FROM n.wake_at \
     AND r.due_at IS NOT DISTINCT FROM n.due_at AND r.quarantined IS NULL ORDER BY r.id FOR UPDATE OF r) same) \
     = cardinality($1) THEN 1 ELSE 0 END";
/// Fails if somebody listens to runs. Comes after the runs are locked, as [`LISTENERS`] does.
pub(super) const NOBODY_LISTENS: &str = "SELECT 1 / CASE WHEN EXISTS (SELECT FROM unnest($1::text[], $2::text[]) \
     AS wanted (tenant, topic) JOIN subscriptions s ON s.tenant = wanted.tenant AND s.topic = wanted.topic \
     WHERE s.active) THEN 0 ELSE 1 END";
/// Keys that must not have been used: whoever puts one in first is the only one, until it is taken back.
pub(super) const KEYS_RESERVE: &str = "INSERT INTO keys (tenant, key, request, run, seq, expires_at) \
     SELECT tenant, key, '', '00000000-0000-0000-0000-000000000000', 0, 0 \
     FROM unnest($1::text[], $2::bytea[]) AS wanted (tenant, key) ON CONFLICT (tenant, key) DO NOTHING \
     RETURNING tenant, key";
/// What keys were used for.
pub(super) const KEYS_OF: &str = "SELECT k.tenant, k.key, k.run FROM unnest($1::text[], $2::bytea[]) \
     AS wanted (tenant, key) JOIN keys k ON k.tenant = wanted.tenant AND k.key = wanted.key";
/// Counters that are not there yet begin at nothing.
pub(super) const COUNTERS_RESERVE: &str = "INSERT INTO counters (tenant, name, value) SELECT tenant, name, 0 \
     FROM unnest($1::text[], $2::bytea[]) AS wanted (tenant, name) ON CONFLICT (tenant, name) DO NOTHING";
/// Counters; nobody else changes them until the end.
pub(super) const COUNTERS_LOCK: &str = "SELECT c.tenant, c.name, c.value FROM unnest($1::text[], $2::bytea[]) \
     AS wanted (tenant, name) JOIN counters c ON c.tenant = wanted.tenant AND c.name = wanted.name FOR UPDATE OF c";
/// Conversations that are closed; nobody closes the others until the end.
pub(super) const SESSIONS_LOCK: &str = "SELECT s.tenant, s.agent, s.session, s.owner, s.closed \
     FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS wanted (tenant, agent, session, owner) \
     JOIN sessions s ON s.tenant = wanted.tenant AND s.agent = wanted.agent AND s.session = wanted.session \
     AND s.owner = wanted.owner FOR SHARE OF s";
/// Who listens to runs. Comes after `RUNS_LOCK`: whoever adds a listener waits for the appends that have begun, and those
/// that begin later see it.
pub(super) const LISTENERS: &str = "SELECT s.tenant, s.topic, s.id, s.wants, s.owner FROM unnest($1::text[], $2::text[]) \
     AS wanted (tenant, topic) JOIN subscriptions s ON s.tenant = wanted.tenant AND s.topic = wanted.topic \
     WHERE s.active ORDER BY s.id";

/// Tenants seen for the first time.
pub(super) const TENANTS_ADD: &str = "INSERT INTO tenants (tenant, tag, created_at) \
     SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[]) ON CONFLICT (tenant) DO NOTHING";
/// New conversations.
pub(super) const SESSIONS_ADD: &str = "INSERT INTO sessions (tenant, agent, session, owner, created_at, updated_at, no) \
     SELECT tenant, agent, session, owner, at, at, no \
     FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[]) \
     AS new (tenant, agent, session, owner, at, no) \
     ON CONFLICT (tenant, agent, session, owner) DO NOTHING";
/// New runs.
pub(super) const RUNS_ADD: &str = "INSERT INTO runs (id, no, tenant, agent, session, owner, driver, started_at, \
     parent, inbox, inbox_facts, priority, seq, at, head, definition, phase, fold, lease_node, lease_until, wake_at, \
     wants_at, due_at, state) SELECT id, no, tenant, agent, session, owner, driver, started_at, parent, inbox, \
     inbox_facts, priority, seq, at, head, definition, phase, $24::integer, lease_node, lease_until, wake_at, wants_at, due_at, \
     state FROM unnest($1::uuid[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::smallint[], \
     $8::bigint[], $9::text[], $10::text[], $11::text[], $12::smallint[], $13::bigint[], $14::bigint[], $15::bytea[], \
     $16::bytea[], $17::smallint[], $18::uuid[], $19::bigint[], $20::bigint[], $21::bigint[], $22::bigint[], \
     $23::text[]) AS new (id, no, tenant, agent, session, owner, driver, started_at, parent, inbox, inbox_facts, \
     priority, seq, at, head, definition, phase, lease_node, lease_until, wake_at, wants_at, due_at, state)";
/// Runs after an append.
pub(super) const RUNS_MOVE: &str = "UPDATE runs r SET seq = n.seq, at = n.at, head = n.head, \
     definition = n.definition, phase = n.phase, fold = $13, lease_node = n.lease_node, lease_until = n.lease_until, \
     wake_at = n.wake_at, wants_at = n.wants_at, due_at = n.due_at, state = n.state \
     FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bytea[], $5::bytea[], $6::smallint[], $7::uuid[], \
     $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::text[]) \
     AS n (id, seq, at, head, definition, phase, lease_node, lease_until, wake_at, wants_at, due_at, state) \
     WHERE r.id = n.id";
/// Runs that others woke.
pub(super) const RUNS_WAKE: &str = "UPDATE runs r SET wake_at = n.wake_at, due_at = n.due_at \
     FROM unnest($1::uuid[], $2::bigint[], $3::bigint[]) AS n (id, wake_at, due_at) WHERE r.id = n.id";
/// The events of appends.
pub(super) const LINKS_ADD: &str = "INSERT INTO links (run, first, count, at, actor, hash, salt, payload) \
     SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::integer[], $4::bigint[], $5::text[], $6::bytea[], \
     $7::uuid[], $8::text[])";
/// When somebody should look at runs.
pub(super) const DUE_SET: &str = "INSERT INTO due (run, no, tenant, agent, shard, at) \
     SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::text[], $4::text[], $5::smallint[], $6::bigint[]) \
     ON CONFLICT (run) DO UPDATE SET at = excluded.at";
/// Nobody needs to look at these runs.
pub(super) const DUE_CLEAR: &str = "DELETE FROM due WHERE run = ANY($1)";
/// Workers may claim these runs.
pub(super) const CLAIMABLE_SET: &str = "INSERT INTO claimable (run, tenant, inbox, priority, no, at) \
     SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::smallint[], $5::bigint[], $6::bigint[]) \
     ON CONFLICT (run) DO UPDATE SET at = excluded.at";
/// Workers may not claim these runs.
pub(super) const CLAIMABLE_CLEAR: &str = "DELETE FROM claimable WHERE run = ANY($1)";
/// New holds.
pub(super) const HOLDS_ADD: &str = "INSERT INTO holds (no, run, call, secret, tenant, agent, tool, kind, inbox, expires_at) \
     SELECT * FROM unnest($1::bigint[], $2::uuid[], $3::bigint[], $4::uuid[], $5::text[], $6::text[], $7::text[], \
     $8::smallint[], $9::text[], $10::bigint[])";
/// Open holds have other deadlines.
pub(super) const HOLDS_DEADLINE: &str = "UPDATE holds h SET expires_at = n.expires_at \
     FROM unnest($1::uuid[], $2::bigint[], $3::uuid[], $4::bigint[]) AS n (run, call, secret, expires_at) \
     WHERE h.run = n.run AND h.call = n.call AND h.secret = n.secret AND h.expires_at IS DISTINCT FROM n.expires_at";
/// How open outside jobs stand, for the view `pending_tool_calls`; triggers keep the rest of those rows (migration 28).
pub(super) const EXTERNAL_SET: &str = "UPDATE external_holds x SET status = n.status FROM unnest($1::uuid[], $2::bigint[], \
     $3::uuid[], $4::text[]) AS n (run, call, secret, status) JOIN holds h USING (run, call, secret) WHERE x.hold = h.no";
/// Holds that have their decision; nobody needs to see them any more.
pub(super) const HOLDS_CLOSE: &str = "WITH closed AS (UPDATE holds h SET closed = true, record = n.record \
     FROM unnest($1::uuid[], $2::bigint[], $3::uuid[], $4::text[]) AS n (run, call, secret, record) \
     WHERE h.run = n.run AND h.call = n.call AND h.secret = n.secret RETURNING h.no) \
     DELETE FROM audience a USING closed WHERE a.hold = closed.no";
/// People may see open holds.
pub(super) const AUDIENCE_ADD: &str = "INSERT INTO audience (tenant, who, hold) SELECT h.tenant, n.who, h.no \
     FROM unnest($1::uuid[], $2::bigint[], $3::uuid[], $4::bytea[]) AS n (run, call, secret, who) \
     JOIN holds h ON h.run = n.run AND h.call = n.call AND h.secret = n.secret AND NOT h.closed \
     ON CONFLICT (tenant, who, hold) DO NOTHING";
/// Large values.
pub(super) const BLOBS_ADD: &str = "INSERT INTO blobs (run, digest, value) \
     SELECT * FROM unnest($1::uuid[], $2::bytea[], $3::bytea[]) ON CONFLICT (run, digest) DO NOTHING";
/// Definitions.
pub(super) const DEFINITIONS_ADD: &str = "INSERT INTO definitions (tenant, digest, bytes) \
     SELECT * FROM unnest($1::text[], $2::bytea[], $3::bytea[]) ON CONFLICT (tenant, digest) DO NOTHING";
/// New notices, or the news that there is more to tell.
pub(super) const NOTICES_ADD: &str = "INSERT INTO notices (no, shard, due_at, subscription, run, first_seq, latest, owner) \
     SELECT * FROM unnest($1::bigint[], $2::smallint[], $3::bigint[], $4::bytea[], $5::uuid[], $6::bigint[], \
     $7::bigint[], $8::text[]) ON CONFLICT (run, subscription) WHERE due_at IS NOT NULL \
     DO UPDATE SET latest = greatest(notices.latest, excluded.latest)";
/// Idempotency keys and what they were used for.
pub(super) const KEYS_SET: &str = "INSERT INTO keys (tenant, key, request, run, seq, expires_at) \
     SELECT * FROM unnest($1::text[], $2::bytea[], $3::bytea[], $4::uuid[], $5::bigint[], $6::bigint[]) \
     ON CONFLICT (tenant, key) DO UPDATE SET request = excluded.request, run = excluded.run, seq = excluded.seq, \
     expires_at = excluded.expires_at";
/// Takes back keys that were only reserved.
pub(super) const KEYS_UNRESERVE: &str = "DELETE FROM keys k USING unnest($1::text[], $2::bytea[]) \
     AS n (tenant, key) WHERE k.tenant = n.tenant AND k.key = n.key";
/// Counters as they came out.
pub(super) const COUNTERS_SET: &str = "UPDATE counters c SET value = n.value \
     FROM unnest($1::text[], $2::bytea[], $3::bigint[]) AS n (tenant, name, value) \
     WHERE c.tenant = n.tenant AND c.name = n.name";

/// Columns of a whole run, in the order that `rows.rs` reads them; among them the hash of its last link.
macro_rules! run_columns {
    () => {
        "r.id, r.no, r.tenant, r.agent, r.session, r.owner, r.driver, r.started_at, r.parent, r.inbox, \
         r.inbox_facts, r.priority, r.seq, r.at, r.head, r.definition, r.fold, r.lease_node, r.lease_until, r.state, \
         (SELECT l.hash FROM links l WHERE l.run = r.id ORDER BY l.first DESC LIMIT 1), r.quarantined"
    };
}
/// A run by its id.
pub(super) const RUN: &str = concat!("SELECT ", run_columns!(), " FROM runs r WHERE r.id = $1");
/// What never changes of a run, in the places of [`RUN`]; its fold, however large it is, is not looked at.
pub(super) const RUN_FACTS: &str = "SELECT r.id, r.no, r.tenant, r.agent, r.session, r.owner, r.driver, r.started_at, r.parent, r.inbox, \
     r.inbox_facts, r.priority, r.seq, r.at, r.head, r.definition, r.fold FROM runs r WHERE r.id = $1";
/// A run by its id; nobody else changes it until the end.
pub(super) const RUN_LOCK: &str =
    concat!("SELECT ", run_columns!(), " FROM runs r WHERE r.id = $1 FOR UPDATE OF r");
/// The phase that a run is listed under: a quarantined run counts as failed.
macro_rules! listed_phase {
    () => {
        "CASE WHEN r.quarantined IS NULL THEN r.phase ELSE 9 END"
    };
}
/// A page of runs: looks at $3 of them and gives those in one of these phases, at most $4.
macro_rules! page_of_runs {
    ($by:literal) => {
        concat!(
            "SELECT ",
            run_columns!(),
            " FROM (SELECT * FROM runs WHERE ",
            $by,
            " AND no < $2 ORDER BY no DESC LIMIT $3) r WHERE r.at >= $6 AND (cardinality($5::smallint[]) = 0 OR ",
            listed_phase!(),
            " = ANY($5)) ORDER BY r.no DESC LIMIT $4"
        )
    };
}
/// The last run that such a page looks at, when there are so many.
macro_rules! end_of_runs {
    ($by:literal) => {
        concat!(
            "SELECT no FROM runs WHERE ",
            $by,
            " AND no < $2 ORDER BY no DESC OFFSET $3::bigint - 1 LIMIT 1"
        )
    };
}
/// The agents of a tenant that have runs.
pub(super) const AGENTS_WITH_RUNS: &str = "WITH RECURSIVE agents AS (\
     (SELECT agent FROM runs WHERE tenant = $1 ORDER BY agent LIMIT 1) UNION ALL \
     (SELECT n.agent FROM agents a, LATERAL (SELECT r.agent FROM runs r WHERE r.tenant = $1 AND r.agent > a.agent \
     ORDER BY r.agent LIMIT 1) n)) SELECT agent FROM agents";
/// Runs of these agents of a tenant, newest first: the newest of each, merged.
pub(super) const RUNS_ALL: &str = concat!(
    "SELECT ",
    run_columns!(),
    " FROM (SELECT n.* FROM unnest($7::text[]) AS a (agent), LATERAL (SELECT * FROM runs WHERE tenant = $1 \
      AND agent = a.agent AND no < $2 ORDER BY no DESC LIMIT $3) n ORDER BY n.no DESC LIMIT $3) r \
      WHERE r.at >= $6 AND (cardinality($5::smallint[]) = 0 OR ",
    listed_phase!(),
    " = ANY($5)) ORDER BY r.no DESC LIMIT $4"
);
/// The last run that such a page looks at.
pub(super) const RUNS_ALL_END: &str = "SELECT n.no FROM unnest($4::text[]) AS a (agent), LATERAL (SELECT no FROM runs \
     WHERE tenant = $1 AND agent = a.agent AND no < $2 ORDER BY no DESC LIMIT $3) n ORDER BY n.no DESC \
     OFFSET $3::bigint - 1 LIMIT 1";
/// Runs of an agent, newest first.
pub(super) const RUNS_BY_AGENT: &str = page_of_runs!("tenant = $1 AND agent = $7");
/// The last of them that is looked at.
pub(super) const RUNS_BY_AGENT_END: &str = end_of_runs!("tenant = $1 AND agent = $4");
/// Runs of a conversation, newest first.
pub(super) const RUNS_BY_SESSION: &str = page_of_runs!("tenant = $1 AND agent = $7 AND session = $8");
/// The last of them that is looked at.
pub(super) const RUNS_BY_SESSION_END: &str = end_of_runs!("tenant = $1 AND agent = $4 AND session = $5");
/// Runs of one user's conversation, newest first.
pub(super) const RUNS_BY_CONVERSATION: &str =
    page_of_runs!("tenant = $1 AND agent = $7 AND session = $8 AND owner = $9");
/// The last of them that is looked at.
pub(super) const RUNS_BY_CONVERSATION_END: &str =
    end_of_runs!("tenant = $1 AND agent = $4 AND session = $5 AND owner = $6");
/// Runs of a user, newest first.
pub(super) const RUNS_BY_OWNER: &str = page_of_runs!("tenant = $1 AND owner = $7");
/// The last of them that is looked at.
pub(super) const RUNS_BY_OWNER_END: &str = end_of_runs!("tenant = $1 AND owner = $4");
/// Runs of an inbox, newest first.
pub(super) const RUNS_BY_INBOX: &str = page_of_runs!("tenant = $1 AND inbox = $7 AND inbox IS NOT NULL");
/// The last of them that is looked at.
pub(super) const RUNS_BY_INBOX_END: &str = end_of_runs!("tenant = $1 AND inbox = $4 AND inbox IS NOT NULL");
/// How many runs the inboxes of a tenant have in which phase; quarantined ones count as failed.
pub(super) const INBOX_COUNTS: &str = concat!(
    "SELECT r.inbox, ",
    listed_phase!(),
    ", count(*) FROM runs r WHERE r.tenant = $1 AND r.inbox IS NOT NULL GROUP BY 1, 2"
);
/// Runs that workers of an inbox may claim, by priority, then age.
pub(super) const RUNS_CLAIMABLE: &str = concat!(
    "SELECT ",
    run_columns!(),
    " FROM claimable c JOIN runs r ON r.id = c.run WHERE c.tenant = $1 AND c.inbox = $2 AND c.at <= $3 \
      AND r.at >= $6 AND (cardinality($5::smallint[]) = 0 OR r.phase = ANY($5)) \
      AND ($7::smallint IS NULL OR r.driver = $7) AND ($8::text IS NULL OR CASE r.driver WHEN 0 THEN r.agent = $8 \
      ELSE coalesce(r.inbox_facts::json ->> 'target_agent', $8) = $8 END) \
      AND (cardinality($9::text[]) = 0 OR r.inbox_facts::json ->> 'type' = ANY($9)) \
      ORDER BY c.priority DESC, c.no LIMIT $4"
);
/// Runs of these agents with outside jobs, newest first.
pub(super) const RUNS_WITH_JOBS: &str = concat!(
    "SELECT ",
    run_columns!(),
    " FROM (SELECT n.* FROM unnest($7::text[]) AS a (agent), LATERAL (SELECT * FROM runs WHERE tenant = $1 \
      AND agent = a.agent AND no < $2 AND NOT erased AND EXISTS (SELECT 1 FROM holds h WHERE h.run = runs.id AND h.kind = 3) \
      ORDER BY no DESC LIMIT $3) n ORDER BY n.no DESC LIMIT $3) r \
      WHERE r.at >= $6 AND (cardinality($5::smallint[]) = 0 OR ",
    listed_phase!(),
    " = ANY($5)) ORDER BY r.no DESC LIMIT $4"
);
/// The last run that such a page looks at.
pub(super) const RUNS_WITH_JOBS_END: &str = "SELECT n.no FROM unnest($4::text[]) AS a (agent), LATERAL (SELECT no FROM \
     runs WHERE tenant = $1 AND agent = a.agent AND no < $2 AND NOT erased AND EXISTS (SELECT 1 FROM holds h WHERE h.run = runs.id \
     AND h.kind = 3) ORDER BY no DESC LIMIT $3) n ORDER BY n.no DESC OFFSET $3::bigint - 1 LIMIT 1";

/// Every run, in the order of their numbers.
pub(super) const RUNS_AFTER: &str = "SELECT no, id FROM runs WHERE no > $1 ORDER BY no LIMIT $2";

/// The links of a run from the one that holds an event on.
pub(super) const LINKS: &str = "SELECT first, count, at, actor, hash, salt, payload, commitment FROM links \
     WHERE run = $1 AND first >= coalesce((SELECT max(first) FROM links WHERE run = $1 AND first <= $2), 0) \
     ORDER BY first LIMIT $3";
/// Deletes the contents of links and keeps their commitments.
pub(super) const LINKS_ERASE: &str = "UPDATE links l SET salt = NULL, payload = NULL, commitment = n.commitment \
     FROM unnest($2::bigint[], $3::bytea[]) AS n (first, commitment) WHERE l.run = $1 AND l.first = n.first";
/// Deletes the large values of a run.
pub(super) const BLOBS_ERASE: &str = "DELETE FROM blobs WHERE run = $1";
/// Deletes the dead letters of a run.
pub(super) const LETTERS_ERASE: &str = "DELETE FROM dead_letters WHERE run = $1";
/// The contents of a run are gone.
pub(super) const RUN_ERASED: &str = "UPDATE runs SET erased = true WHERE id = $1";
/// Runs as they began, and which of them have ended and are old, have their contents, and have nothing left to tell. What a run says of itself is in its
/// state, where no text can look like it: quotes inside texts are escaped.
pub(super) const RUNS_ENDED: &str = "SELECT no, id, CASE WHEN tenant <> $3 OR phase < 8 OR erased OR quarantined IS NOT NULL \
     OR EXISTS (SELECT 1 FROM notices n WHERE n.run = runs.id AND n.due_at IS NOT NULL) THEN 0 \
     WHEN state LIKE '%\"erased\":true%' THEN 1 WHEN at < $4 THEN 2 ELSE 0 END, \
     started_at < $4, agent, at FROM runs WHERE no > $1 ORDER BY no LIMIT $2";
/// A large value by its name.
pub(super) const BLOB: &str = "SELECT value FROM blobs WHERE run = $1 AND digest = $2";
/// A definition by its name.
pub(super) const DEFINITION: &str = "SELECT bytes FROM definitions WHERE tenant = $1 AND digest = $2";
/// What an idempotency key was used for.
pub(super) const KEY: &str = "SELECT request, run, seq, expires_at FROM keys WHERE tenant = $1 AND key = $2";
/// Keys in a range, the last first, with what they were used for.
pub(super) const KEYS_UNDER: &str = "SELECT request, run, seq, expires_at, key FROM keys \
     WHERE tenant = $1 AND key >= $2 AND key < $3 ORDER BY key DESC LIMIT $4";
/// Keys that are noted, as long as their runs are there, and keys that are forgotten; nothing is written for those that say
/// the same and are remembered for long enough. The commit does not wait for the disk: it is there with the next one.
pub(super) const KEYS_NOTE: &str = "WITH unsynced AS MATERIALIZED \
     (SELECT set_config('synchronous_commit', 'off', true) AS is_off), \
     gone AS (DELETE FROM keys k USING unsynced, unnest($7::text[], $8::bytea[]) AS n (tenant, key) \
     WHERE k.tenant = n.tenant AND k.key = n.key AND unsynced.is_off IS NOT NULL RETURNING 1) \
     INSERT INTO keys (tenant, key, request, run, seq, expires_at) \
     SELECT n.tenant, n.key, n.request, n.run, 0, n.expires_at FROM unsynced, \
     unnest($1::text[], $2::bytea[], $3::bytea[], $4::uuid[], $5::bigint[]) AS n (tenant, key, request, run, expires_at) \
     JOIN runs r ON r.id = n.run WHERE unsynced.is_off IS NOT NULL \
     ON CONFLICT (tenant, key) DO UPDATE SET request = excluded.request, run = excluded.run, seq = excluded.seq, \
     expires_at = excluded.expires_at \
     WHERE keys.request <> excluded.request OR keys.expires_at < excluded.expires_at - $6::bigint";
/// Forgets keys whose time has passed.
pub(super) const KEYS_FORGET: &str = "WITH past AS (SELECT tenant, key FROM keys WHERE expires_at <= $1 \
     ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED), \
     gone AS (DELETE FROM keys k USING past WHERE k.tenant = past.tenant AND k.key = past.key RETURNING 1) \
     SELECT count(*) FROM gone";

/// The holds of one call.
pub(super) const HOLDS_OF_CALL: &str =
    "SELECT secret, record FROM holds WHERE run = $1 AND call = $2 ORDER BY no";
/// A page of open holds with their runs: looks at $3 of them and gives those of these kinds that one of $5 may see.
macro_rules! page_of_holds {
    ($scan:expr) => {
        page_of_holds!($scan, "true", "h.no")
    };
    ($scan:expr, $wanted:literal, $order:literal) => {
        concat!(
            "SELECT h.no, h.call, h.secret, ",
            run_columns!(),
            " FROM (",
            $scan,
            ") h JOIN runs r ON r.id = h.run WHERE (cardinality($4::smallint[]) = 0 OR h.kind = ANY($4)) \
              AND ($5::bytea[] IS NULL OR EXISTS (SELECT 1 FROM audience a WHERE a.tenant = $1 AND a.who = ANY($5) \
              AND a.hold = h.no)) AND ",
            $wanted,
            " ORDER BY ",
            $order,
            " LIMIT $6"
        )
    };
}
/// The last hold that such a page looks at, when there are so many.
macro_rules! end_of_holds {
    ($scan:expr) => {
        concat!("SELECT max(no) FROM (", $scan, ") h HAVING count(*) >= $3")
    };
}
macro_rules! holds_all {
    () => {
        "SELECT * FROM holds WHERE tenant = $1 AND NOT closed AND no > $2 ORDER BY no LIMIT $3"
    };
}
macro_rules! holds_dated {
    () => {
        "SELECT * FROM holds WHERE tenant = $1 AND NOT closed AND expires_at > 0 \
         AND (expires_at, no) > (coalesce((SELECT c.expires_at FROM holds c WHERE c.no = $2), 0), $2) \
         ORDER BY expires_at, no LIMIT $3"
    };
}
macro_rules! holds_seen {
    ($who:literal) => {
        concat!(
            "SELECT o.* FROM (SELECT DISTINCT s.hold FROM unnest(",
            $who,
            "::bytea[]) AS w (who), LATERAL (SELECT hold FROM audience WHERE tenant = $1 AND who = w.who \
              AND hold > $2 ORDER BY hold LIMIT $3) s ORDER BY s.hold LIMIT $3) seen \
              JOIN holds o ON o.no = seen.hold AND NOT o.closed ORDER BY o.no"
        )
    };
}
macro_rules! holds_by {
    ($column:literal, $value:literal) => {
        concat!(
            "SELECT * FROM holds WHERE tenant = $1 AND ",
            $column,
            " = ",
            $value,
            " AND NOT closed AND no > $2 ORDER BY no LIMIT $3"
        )
    };
}
macro_rules! holds_of_session {
    ($agent:literal, $session:literal) => {
        concat!(
            "SELECT o.* FROM runs q JOIN holds o ON o.run = q.id WHERE q.tenant = $1 AND q.agent = ",
            $agent,
            " AND q.session = ",
            $session,
            " AND NOT o.closed AND o.no > $2 ORDER BY o.no LIMIT $3"
        )
    };
}
/// Open holds of a tenant, oldest first.
pub(super) const HOLDS_ALL: &str = page_of_holds!(holds_all!());
/// The last of them that is looked at.
pub(super) const HOLDS_ALL_END: &str = end_of_holds!(holds_all!());
/// Open holds that one of these may see.
pub(super) const HOLDS_SEEN: &str = page_of_holds!(holds_seen!("$5"));
/// The last of them that is looked at.
pub(super) const HOLDS_SEEN_END: &str = end_of_holds!(holds_seen!("$4"));
/// Open holds of a tenant that have no deadline.
pub(super) const HOLDS_UNDATED: &str = page_of_holds!(holds_all!(), "coalesce(h.expires_at, 0) = 0", "h.no");
/// Those that one of these may see.
pub(super) const HOLDS_UNDATED_SEEN: &str =
    page_of_holds!(holds_seen!("$5"), "coalesce(h.expires_at, 0) = 0", "h.no");
/// Open holds with a deadline, the earliest first; after the one with number $2.
pub(super) const HOLDS_DATED: &str = page_of_holds!(holds_dated!(), "true", "h.expires_at, h.no");
/// The last of them that is looked at.
pub(super) const HOLDS_DATED_END: &str = concat!(
    "SELECT CASE WHEN count(*) >= $3 THEN (array_agg(no ORDER BY expires_at DESC, no DESC))[1] END FROM (",
    holds_dated!(),
    ") h"
);
/// Open holds whose deadlines nobody has looked at.
pub(super) const HOLDS_WITHOUT_LOOK: &str = concat!(
    "SELECT h.no, h.call, h.secret, ",
    run_columns!(),
    " FROM holds h JOIN runs r ON r.id = h.run WHERE NOT h.closed AND h.expires_at IS NULL ORDER BY h.no LIMIT $1"
);
/// What was found of them; those that got a deadline meanwhile keep it.
pub(super) const HOLDS_LOOKED_AT: &str = "UPDATE holds h SET expires_at = n.expires_at \
     FROM unnest($1::bigint[], $2::bigint[]) AS n (no, expires_at) WHERE h.no = n.no AND h.expires_at IS NULL";
/// Open holds of an agent.
pub(super) const HOLDS_BY_AGENT: &str = page_of_holds!(holds_by!("agent", "$7"));
/// The last of them that is looked at.
pub(super) const HOLDS_BY_AGENT_END: &str = end_of_holds!(holds_by!("agent", "$4"));
/// Open holds of a tool.
pub(super) const HOLDS_BY_TOOL: &str = page_of_holds!(holds_by!("tool", "$7"));
/// The last of them that is looked at.
pub(super) const HOLDS_BY_TOOL_END: &str = end_of_holds!(holds_by!("tool", "$4"));
/// Open holds of an inbox.
pub(super) const HOLDS_BY_INBOX: &str = page_of_holds!(holds_by!("inbox IS NOT NULL AND inbox", "$7"));
/// The last of them that is looked at.
pub(super) const HOLDS_BY_INBOX_END: &str = end_of_holds!(holds_by!("inbox IS NOT NULL AND inbox", "$4"));
/// Open holds of a run.
pub(super) const HOLDS_BY_RUN: &str = page_of_holds!(holds_by!("run", "$7"));
/// The last of them that is looked at.
pub(super) const HOLDS_BY_RUN_END: &str = end_of_holds!(holds_by!("run", "$4"));
/// Open holds of a conversation: few runs, few holds each.
pub(super) const HOLDS_BY_SESSION: &str = page_of_holds!(holds_of_session!("$7", "$8"));
/// The last of them that is looked at.
pub(super) const HOLDS_BY_SESSION_END: &str = end_of_holds!(holds_of_session!("$4", "$5"));

/// Decided holds, the latest decision first.
pub(super) const HOLDS_DECIDED: &str = r#"SELECT substring(record from '"closed_at":(\d{1,18})')::bigint, run, call, secret, record
     FROM holds WHERE tenant = $1 AND closed AND substring(record from '"closed_at":(\d{1,18})')::bigint >= $2
     AND substring(record from '"closed_at":(\d{1,18})')::bigint < $3
     ORDER BY substring(record from '"closed_at":(\d{1,18})')::bigint DESC, no DESC LIMIT $4"#;

/// How many runs of a tenant are in which phase, and how many were quarantined.
pub(super) const COUNT_RUNS: &str = "SELECT phase, quarantined IS NOT NULL, count(*) FROM runs WHERE tenant = $1 \
     GROUP BY 1, 2";
/// How many holds of a tenant are open, by agent and kind.
pub(super) const COUNT_HOLDS: &str = "SELECT agent, kind, count(*) FROM holds WHERE tenant = $1 AND NOT closed \
     GROUP BY agent, kind ORDER BY agent, kind";

/// Due runs of each agent, the longest due first, of these shards and of a fold that this node knows.
pub(super) const DUE: &str = "WITH RECURSIVE lanes AS (\
     (SELECT tenant, agent FROM due ORDER BY tenant, agent LIMIT 1) UNION ALL \
     (SELECT n.tenant, n.agent FROM lanes l, LATERAL (SELECT d.tenant, d.agent FROM due d \
     WHERE (d.tenant, d.agent) > (l.tenant, l.agent) ORDER BY d.tenant, d.agent LIMIT 1) n)) \
     SELECT l.tenant, l.agent, c.run, c.no, c.at FROM lanes l, LATERAL (SELECT s.run, s.no, s.at FROM \
     (SELECT d.run, d.no, d.at, d.shard FROM due d WHERE d.tenant = l.tenant AND d.agent = l.agent AND d.at <= $1 \
     ORDER BY d.at, d.no LIMIT $2) s LEFT JOIN runs r ON r.id = s.run WHERE s.shard = ANY($3) \
     AND coalesce(r.fold, 0) <= $4 ORDER BY s.at, s.no LIMIT $5) c ORDER BY l.tenant, l.agent, c.at, c.no";
/// Leases those of these runs that are still due, and says who had them before.
pub(super) const LEASE: &str = concat!(
    "WITH before AS (SELECT id, lease_node, lease_until FROM runs WHERE id = ANY($1) AND due_at <= $4 \
      AND fold <= $5 ORDER BY id FOR UPDATE), \
      taken AS (UPDATE runs SET lease_node = $2, lease_until = $3, wake_at = NULL, due_at = $3 FROM before \
      WHERE runs.id = before.id \
      RETURNING runs.*, before.lease_node AS from_node, before.lease_until AS from_until), \
      moved AS (UPDATE due SET at = $3 FROM taken WHERE due.run = taken.id) SELECT ",
    run_columns!(),
    ", r.from_node, r.from_until FROM taken r"
);
/// Puts a run aside, unless it is already. The run is locked, so nobody adds to its work meanwhile.
pub(super) const QUARANTINE: &str = "WITH aside AS (UPDATE runs SET quarantined = $2, lease_node = NULL, \
     lease_until = NULL, wake_at = NULL, due_at = NULL WHERE id = $1 AND quarantined IS NULL RETURNING id), \
     unclaimable AS (DELETE FROM claimable USING aside WHERE claimable.run = aside.id) \
     DELETE FROM due USING aside WHERE due.run = aside.id";
/// A run that cannot be read is no longer due.
pub(super) const NOT_DUE: &str = "WITH freed AS (UPDATE runs SET lease_node = NULL, lease_until = NULL, \
     due_at = NULL WHERE id = $1) DELETE FROM due WHERE run = $1";
/// Extends a node's leases.
pub(super) const RENEW: &str = "WITH mine AS (UPDATE runs SET lease_until = $3, due_at = $3 \
     WHERE id = ANY($1) AND lease_node = $2 RETURNING id), \
     moved AS (UPDATE due SET at = $3 FROM mine WHERE due.run = mine.id) SELECT id FROM mine";
/// Gives a lease back.
pub(super) const RELEASE: &str = "WITH freed AS (UPDATE runs SET lease_node = NULL, lease_until = NULL, \
     wake_at = least(wake_at, $3::bigint), due_at = least(wants_at, wake_at, $3::bigint) WHERE id = $1 AND lease_node = $2 RETURNING id, due_at), \
     gone AS (DELETE FROM due USING freed WHERE due.run = freed.id AND freed.due_at IS NULL) \
     UPDATE due SET at = freed.due_at FROM freed WHERE due.run = freed.id AND freed.due_at IS NOT NULL";

/// Notices whose time has come, of runs of a fold that this node knows: turn by turn for each owner.
pub(super) const NOTICES_DUE: &str = "WITH RECURSIVE owners AS (\
     (SELECT owner FROM notices WHERE due_at IS NOT NULL ORDER BY owner LIMIT 1) UNION ALL \
     (SELECT n.owner FROM owners o, LATERAL (SELECT m.owner FROM notices m WHERE m.due_at IS NOT NULL \
     AND m.owner > o.owner ORDER BY m.owner LIMIT 1) n)) \
     SELECT d.no, d.subscription, d.run, d.first_seq, d.attempts, d.owner FROM owners o, LATERAL \
     (SELECT f.*, row_number() OVER (ORDER BY f.due_at, f.no) AS round FROM (SELECT n.* FROM \
     (SELECT * FROM notices WHERE owner = o.owner AND due_at IS NOT NULL AND due_at <= $1 AND shard = ANY($2) \
     AND subscription <> ALL($4) ORDER BY due_at, no) n LEFT JOIN runs r ON r.id = n.run \
     WHERE coalesce(r.fold, 0) <= $5 ORDER BY n.due_at, n.no LIMIT $7) f) d \
     WHERE o.owner <> ALL($6) ORDER BY d.round, d.due_at, d.no LIMIT $3";
/// What was delivered: all of it, or there is more.
pub(super) const NOTICE_DELIVERED: &str = "WITH more AS (UPDATE notices SET attempts = 0, \
     first_seq = greatest(first_seq, $2::bigint + 1) WHERE no = $1 AND latest > $2) DELETE FROM notices WHERE no = $1 AND latest <= $2";
/// It is tried again. Tries count for the event that they begin with.
pub(super) const NOTICE_RETRY: &str = "UPDATE notices SET due_at = $2, \
     attempts = CASE WHEN $3 > first_seq THEN 1 ELSE attempts + 1 END, first_seq = greatest(first_seq, $3) \
     WHERE no = $1";
/// It is given up: it becomes a dead letter.
pub(super) const NOTICE_BURY: &str = "WITH gone AS (DELETE FROM notices WHERE no = $1 \
     RETURNING no, shard, subscription, run, first_seq, latest, attempts, owner) INSERT INTO dead_letters \
     (no, tenant, shard, subscription, run, first_seq, latest, attempts, at, why, owner) \
     SELECT g.no, r.tenant, g.shard, g.subscription, g.run, greatest(g.first_seq, $3), g.latest, \
     CASE WHEN $3 > g.first_seq THEN 1 ELSE g.attempts + 1 END, $2, $4, g.owner FROM gone g JOIN runs r ON r.id = g.run";
/// A dead letter becomes a notice again; one that is there begins as early as the letter did.
pub(super) const DEAD_RESEND: &str = "WITH risen AS (DELETE FROM dead_letters WHERE no = $1 AND tenant = $2 \
     RETURNING no, shard, subscription, run, first_seq, latest, owner) \
     INSERT INTO notices (no, shard, due_at, subscription, run, first_seq, latest, owner) \
     SELECT no, shard, $3, subscription, run, first_seq, latest, owner FROM risen \
     ON CONFLICT (run, subscription) WHERE due_at IS NOT NULL DO UPDATE SET due_at = excluded.due_at, attempts = 0, \
     first_seq = least(notices.first_seq, excluded.first_seq), latest = greatest(notices.latest, excluded.latest) \
     RETURNING 1";
/// The dead letters of a subscription.
pub(super) const DEAD_LETTERS: &str = "SELECT no, subscription, run, first_seq, attempts, at, why FROM dead_letters \
     WHERE tenant = $1 AND subscription = $2 AND no > $3 ORDER BY no LIMIT $4";

/// Waits until no append is under way and keeps new ones away until the end of the transaction, which is short.
pub(super) const APPENDS_STOP: &str = "LOCK TABLE runs IN EXCLUSIVE MODE";
/// A new subscription.
pub(super) const SUBSCRIPTION_ADD: &str = "INSERT INTO subscriptions (tenant, id, topic, wants, active, facts, owner) \
     VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (tenant, id) DO NOTHING RETURNING 1";
/// Another one, if it still is what the caller read.
pub(super) const SUBSCRIPTION_CHANGE: &str = "UPDATE subscriptions SET wants = $4, active = $5, facts = $6 \
     WHERE tenant = $1 AND id = $2 AND facts = $3 RETURNING 1";
/// It is gone, with its dead letters.
pub(super) const SUBSCRIPTION_DELETE: &str = "WITH letters AS (DELETE FROM dead_letters WHERE tenant = $1 \
     AND subscription = $3) DELETE FROM subscriptions WHERE tenant = $1 AND id = $2 RETURNING 1";
/// A subscription by its id.
pub(super) const SUBSCRIPTION: &str =
    "SELECT id, topic, wants, active, facts, owner FROM subscriptions WHERE tenant = $1 AND id = $2";
/// The subscriptions of a tenant, by id.
pub(super) const SUBSCRIPTIONS: &str = "SELECT id, topic, wants, active, facts, owner FROM subscriptions \
     WHERE tenant = $1 AND id > $2 ORDER BY id LIMIT $3";
/// The subscriptions of an owner, by id.
pub(super) const SUBSCRIPTIONS_OF: &str = "SELECT id, topic, wants, active, facts, owner FROM subscriptions \
     WHERE tenant = $1 AND owner = $4 AND id > $2 ORDER BY id LIMIT $3";
/// How many active subscriptions to agents or everything there are, of one owner or of all.
pub(super) const SUBSCRIPTIONS_BROAD: &str = "SELECT count(*) FROM subscriptions \
     WHERE tenant = $1 AND active AND left(topic, 4) <> 'run ' AND ($2::text IS NULL OR owner = $2)";
/// How many active subscriptions of a topic there are, of one owner or of all.
pub(super) const SUBSCRIPTIONS_TO: &str = "SELECT count(*) FROM subscriptions \
     WHERE tenant = $1 AND topic = $2 AND active AND ($3::text IS NULL OR owner = $3)";
/// Tenants, by name.
pub(super) const TENANTS: &str = "SELECT tenant FROM tenants WHERE tenant > $1 ORDER BY tenant";

/// A conversation by its name.
pub(super) const SESSION: &str = "SELECT metadata, created_at, updated_at, closed FROM sessions \
     WHERE tenant = $1 AND agent = $2 AND session = $3 AND owner = $4";
/// A page of conversations, newest first: looks at $3 of them and gives those with this agent, name and owner, at most $5.
macro_rules! page_of_sessions {
    ($by:literal) => {
        concat!(
            "SELECT no, agent, session, metadata, created_at, updated_at, closed, owner FROM (SELECT * FROM sessions \
             WHERE tenant = $1 AND no < $2",
            $by,
            " ORDER BY no DESC LIMIT $3) s WHERE ($4::text IS NULL OR agent = $4) AND ($6::text IS NULL OR session = $6) \
             AND ($7::text IS NULL OR owner = $7) ORDER BY no DESC LIMIT $5"
        )
    };
}
/// Conversations of a tenant.
pub(super) const SESSIONS_ALL: &str = page_of_sessions!("");
/// The last of them that is looked at, when there are so many.
pub(super) const SESSIONS_ALL_END: &str =
    "SELECT no FROM sessions WHERE tenant = $1 AND no < $2 ORDER BY no DESC OFFSET $3::bigint - 1 LIMIT 1";
/// Conversations of a user.
pub(super) const SESSIONS_BY_OWNER: &str = page_of_sessions!(" AND owner = $7");
/// The last of them that is looked at.
pub(super) const SESSIONS_BY_OWNER_END: &str = "SELECT no FROM sessions WHERE tenant = $1 AND no < $2 AND owner = $4 \
     ORDER BY no DESC OFFSET $3::bigint - 1 LIMIT 1";
/// Conversations of a name with an agent.
pub(super) const SESSIONS_BY_NAME: &str = page_of_sessions!(" AND agent = $4 AND session = $6");
/// The last of them that is looked at.
pub(super) const SESSIONS_BY_NAME_END: &str = "SELECT no FROM sessions WHERE tenant = $1 AND no < $2 AND agent = $4 \
     AND session = $5 ORDER BY no DESC OFFSET $3::bigint - 1 LIMIT 1";
/// Other metadata, if they still are what the caller read.
pub(super) const SESSION_METADATA: &str = "UPDATE sessions SET metadata = $6, updated_at = $7 \
     WHERE tenant = $1 AND agent = $2 AND session = $3 AND owner = $4 AND metadata = $5 RETURNING 1";
/// No more runs in a conversation.
pub(super) const SESSION_CLOSE: &str = "UPDATE sessions SET closed = true \
     WHERE tenant = $1 AND agent = $2 AND session = $3 AND owner = $4 RETURNING 1";

/// A new credential, unless its prefix is taken.
pub(super) const CREDENTIAL_ADD: &str = "INSERT INTO credentials (tenant, prefix, hash, facts, expires_at, revoked_at) \
     VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (prefix) DO NOTHING RETURNING 1";
/// A credential by its prefix.
pub(super) const CREDENTIAL: &str =
    "SELECT tenant, prefix, hash, facts, expires_at, revoked_at FROM credentials WHERE prefix = $1";
/// The credentials of a tenant.
pub(super) const CREDENTIALS: &str = "SELECT tenant, prefix, hash, facts, expires_at, revoked_at FROM credentials \
     WHERE tenant = $1 ORDER BY prefix";
/// No longer valid; the first instant stays.
pub(super) const CREDENTIAL_REVOKE: &str = "UPDATE credentials SET revoked_at = coalesce(revoked_at, $3) \
     WHERE tenant = $1 AND prefix = $2 RETURNING 1";
/// Valid until then at most.
pub(super) const CREDENTIAL_EXPIRE: &str = "UPDATE credentials SET expires_at = least(coalesce(expires_at, $3), $3) \
     WHERE tenant = $1 AND prefix = $2 RETURNING 1";
/// A sealed secret.
pub(super) const SEALED: &str = "SELECT value FROM sealed WHERE tenant = $1 AND name = $2";
/// A new one, unless its name is taken.
pub(super) const SEALED_ADD: &str = "INSERT INTO sealed (tenant, name, value) VALUES ($1, $2, $3) ON CONFLICT (tenant, name) DO NOTHING RETURNING 1";
/// Another one in its place, if it still is what the caller read.
pub(super) const SEALED_CHANGE: &str =
    "UPDATE sealed SET value = $4 WHERE tenant = $1 AND name = $2 AND value = $3 RETURNING 1";
/// None in its place, if it still is what the caller read.
pub(super) const SEALED_REMOVE: &str =
    "DELETE FROM sealed WHERE tenant = $1 AND name = $2 AND value = $3 RETURNING 1";
/// One more entry of a tenant's audit; nothing when another node took the number.
pub(super) const AUDIT_ADD: &str = "INSERT INTO audit (tenant, no, at, entry, hash) VALUES ($1, $2, $3, $4, $5) \
     ON CONFLICT DO NOTHING RETURNING no";
/// The last entry of a tenant's audit.
pub(super) const AUDIT_LAST: &str = "SELECT no, hash FROM audit WHERE tenant = $1 ORDER BY no DESC LIMIT 1";
/// A page of a tenant's audit.
pub(super) const AUDIT_AFTER: &str =
    "SELECT no, at, entry, hash FROM audit WHERE tenant = $1 AND no > $2 ORDER BY no LIMIT $3";
/// A page of the audit of all tenants.
pub(super) const AUDIT_ALL: &str = "SELECT tenant, no, at, entry, hash FROM audit \
     WHERE (tenant, no) > ($1, $2) ORDER BY tenant, no LIMIT $3";

/// A node says that it is there.
pub(super) const NODE_SET: &str = "INSERT INTO nodes (node, facts, seen_until) VALUES ($1, $2, $3) \
     ON CONFLICT (node) DO UPDATE SET facts = excluded.facts, seen_until = excluded.seen_until";
/// A node goes.
pub(super) const NODE_GONE: &str = "DELETE FROM nodes WHERE node = $1";
/// Nodes without a heartbeat for long.
pub(super) const NODES_FORGET: &str = "DELETE FROM nodes WHERE seen_until < $1";
/// Everyone who is there. There are as many as there are machines.
pub(super) const NODES: &str =
    "SELECT node, facts, seen_until FROM nodes WHERE seen_until > $1 ORDER BY node";
/// Who has which shard; nobody else moves them until the end. There are 256.
pub(super) const SHARDS_LOCK: &str = "SELECT shard, node, until FROM shards ORDER BY shard FOR UPDATE";
/// Who has which shard.
pub(super) const SHARDS: &str = "SELECT shard, node, until FROM shards ORDER BY shard";
/// A node has these shards until then.
pub(super) const SHARDS_TAKE: &str = "UPDATE shards SET node = $2, until = $3 WHERE shard = ANY($1)";
/// Nobody has these shards; from then on anybody may.
pub(super) const SHARDS_FREE: &str = "UPDATE shards SET node = NULL, until = $2 WHERE shard = ANY($1)";
/// Nobody has the shards of this node.
pub(super) const SHARDS_LEAVE: &str = "UPDATE shards SET node = NULL, until = 0 WHERE node = $1";

/// The number of this session, by which its own hints are known.
pub(super) const OWN_PROCESS: &str = "SELECT pg_backend_pid()";
/// Listens to the other nodes.
pub(super) const LISTEN: &str = "LISTEN standfast_hints";
/// Tells the other nodes in which shards something changed.
pub(super) const NOTIFY: &str = "SELECT pg_notify('standfast_hints', $1)";

/// Statements with their names.
#[cfg(test)]
macro_rules! listed {
    ($($name:ident),* $(,)?) => {
        &[$((stringify!($name), $name)),*]
    };
}
/// All of them, for the test that reads their plans.
#[cfg(test)]
#[rustfmt::skip]
pub(super) const ALL: &[(&str, &str)] = listed![
    IS_STANDBY, MIGRATION_LOCK, HAS_HISTORY, NEWEST_MIGRATION, FOREIGN_TABLES, HIGHEST_NUMBER, TIME,
    RUNS_LOCK, RUNS_UNCHANGED, NOBODY_LISTENS, KEYS_RESERVE, KEYS_OF, COUNTERS_RESERVE, COUNTERS_LOCK,
    SESSIONS_LOCK, LISTENERS, TENANTS_ADD, SESSIONS_ADD, RUNS_ADD, RUNS_MOVE, RUNS_WAKE, LINKS_ADD, DUE_SET,
    DUE_CLEAR, CLAIMABLE_SET, CLAIMABLE_CLEAR, HOLDS_ADD, HOLDS_DEADLINE, EXTERNAL_SET, HOLDS_CLOSE, AUDIENCE_ADD,
    BLOBS_ADD, DEFINITIONS_ADD, NOTICES_ADD, KEYS_SET, KEYS_UNRESERVE, COUNTERS_SET, RUN, RUN_FACTS,
    RUN_LOCK, AGENTS_WITH_RUNS, RUNS_ALL, RUNS_ALL_END, RUNS_BY_AGENT, RUNS_BY_AGENT_END, RUNS_BY_SESSION,
    RUNS_BY_SESSION_END, RUNS_BY_CONVERSATION, RUNS_BY_CONVERSATION_END, RUNS_BY_OWNER, RUNS_BY_OWNER_END,
    RUNS_BY_INBOX, RUNS_BY_INBOX_END, INBOX_COUNTS, RUNS_CLAIMABLE, RUNS_WITH_JOBS, RUNS_WITH_JOBS_END,
    RUNS_AFTER, LINKS, LINKS_ERASE, BLOBS_ERASE, LETTERS_ERASE, RUN_ERASED, RUNS_ENDED, BLOB, DEFINITION,
    KEY, KEYS_UNDER, KEYS_NOTE, KEYS_FORGET, HOLDS_OF_CALL, HOLDS_ALL, HOLDS_ALL_END, HOLDS_SEEN, HOLDS_SEEN_END,
    HOLDS_UNDATED, HOLDS_UNDATED_SEEN, HOLDS_DATED, HOLDS_DATED_END, HOLDS_WITHOUT_LOOK, HOLDS_LOOKED_AT,
    HOLDS_BY_AGENT, HOLDS_BY_AGENT_END, HOLDS_BY_TOOL, HOLDS_BY_TOOL_END, HOLDS_BY_INBOX,
    HOLDS_BY_INBOX_END, HOLDS_BY_RUN, HOLDS_BY_RUN_END, HOLDS_BY_SESSION, HOLDS_BY_SESSION_END,
    HOLDS_DECIDED, COUNT_RUNS, COUNT_HOLDS, DUE, LEASE, QUARANTINE, NOT_DUE, RENEW, RELEASE, NOTICES_DUE,
    NOTICE_DELIVERED, NOTICE_RETRY, NOTICE_BURY, DEAD_RESEND, DEAD_LETTERS, APPENDS_STOP, SUBSCRIPTION_ADD,
    SUBSCRIPTION_CHANGE, SUBSCRIPTION_DELETE, SUBSCRIPTION, SUBSCRIPTIONS, SUBSCRIPTIONS_OF,
    SUBSCRIPTIONS_BROAD, SUBSCRIPTIONS_TO, TENANTS, SESSION, SESSIONS_ALL, SESSIONS_ALL_END,
    SESSIONS_BY_OWNER, SESSIONS_BY_OWNER_END, SESSIONS_BY_NAME, SESSIONS_BY_NAME_END, SESSION_METADATA,
    SESSION_CLOSE, CREDENTIAL_ADD, CREDENTIAL, CREDENTIALS, CREDENTIAL_REVOKE, CREDENTIAL_EXPIRE, SEALED, SEALED_ADD,
    SEALED_CHANGE, SEALED_REMOVE, AUDIT_ADD, AUDIT_LAST, AUDIT_AFTER, AUDIT_ALL, NODE_SET, NODE_GONE,
    NODES_FORGET, NODES, SHARDS_LOCK, SHARDS, SHARDS_TAKE, SHARDS_FREE, SHARDS_LEAVE, OWN_PROCESS, LISTEN,
    NOTIFY,
];
