-- Fewer rows for each run.

-- What is due is found by an index of the runs themselves, which have the instant already.
DROP TABLE due;
CREATE INDEX runs_due ON runs (tenant, agent, due_at) WHERE due_at IS NOT NULL;

-- The fold in a denser form; `state` is empty then. What an earlier version wrote stays in `state` until the run's next append.
ALTER TABLE runs ADD COLUMN packed BLOB;

-- A conversation has the number of its first run. A run that was begun without naming one has the number 0 and no row: its
-- conversation has the run's own name. A row is made when there is more to say: a second run, metadata, a close.
CREATE TABLE session_numbers (old INTEGER PRIMARY KEY, new INTEGER NOT NULL) STRICT;
INSERT INTO session_numbers SELECT s.no, coalesce((SELECT min(r.no) FROM runs r WHERE r.session = s.no), -s.no)
    FROM sessions s;
CREATE TABLE sessions_numbered (
    no         INTEGER PRIMARY KEY,          -- runs.no of its first run
    tenant     INTEGER NOT NULL,
    agent      INTEGER NOT NULL,
    session    TEXT    NOT NULL,
    owner      INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    closed     INTEGER NOT NULL DEFAULT 0,
    metadata   TEXT                          -- a JSON object; NULL is the empty one
) STRICT;
INSERT INTO sessions_numbered SELECT n.new, s.tenant, s.agent, s.session, s.owner, s.created_at, s.updated_at, s.closed,
    s.metadata FROM sessions s JOIN session_numbers n ON n.old = s.no;
DROP VIEW pending_tool_calls;
DROP TABLE sessions;
ALTER TABLE sessions_numbered RENAME TO sessions;
CREATE UNIQUE INDEX sessions_by_name ON sessions (tenant, agent, session, owner);
CREATE INDEX sessions_by_owner ON sessions (tenant, owner);
DROP INDEX runs_by_session;
UPDATE runs SET session = coalesce((SELECT n.new FROM session_numbers n WHERE n.old = runs.session), runs.session);
CREATE INDEX runs_by_session ON runs (session) WHERE session <> 0;
DROP TABLE session_numbers;

-- The calls whose results come from elsewhere, as before; a conversation without a row has the name of its run.
CREATE VIEW pending_tool_calls AS
WITH jobs AS (
    SELECT h.run, h.call, coalesce(s.session, 'ses_' || (WITH RECURSIVE
        text(n, done) AS (
            SELECT 0, ''
            UNION ALL
            SELECT n + 1, done || substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (
                (((instr('0123456789ABCDEF', substr(bytes.hex, 2 * (n * 5 / 8) + 1, 1)) - 1) * 16 + instr('0123456789ABCDEF', substr(bytes.hex, 2 * (n * 5 / 8) + 2, 1)) - 1) * 256
                    + ((instr('0123456789ABCDEF', substr(bytes.hex, 2 * (n * 5 / 8 + 1) + 1, 1)) - 1) * 16 + instr('0123456789ABCDEF', substr(bytes.hex, 2 * (n * 5 / 8 + 1) + 2, 1)) - 1))
                    >> (11 - n * 5 % 8) & 31), 1)
            FROM text, bytes WHERE n < 26
        ),
        bytes(hex) AS (SELECT hex(r.id) || '00')
        SELECT done FROM text WHERE n = 26)) AS session, names.text AS tool, hex(r.id) AS run_hex,
        r.id AS run_id, hex(h.secret) AS secret_hex, r.phase
    FROM holds h
    JOIN runs r ON r.no = h.run
    LEFT JOIN sessions s ON s.no = r.session AND r.session <> 0
    LEFT JOIN names ON names.no = h.tool
    WHERE h.kind = 3
),
keyed AS (
    SELECT jobs.*,
        jobs.call || '-' || (WITH RECURSIVE
        text(n, done) AS (
            SELECT 0, ''
            UNION ALL
            SELECT n + 1, done || substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (
                (((instr('0123456789ABCDEF', substr(bytes.hex, 2 * (n * 5 / 8) + 1, 1)) - 1) * 16 + instr('0123456789ABCDEF', substr(bytes.hex, 2 * (n * 5 / 8) + 2, 1)) - 1) * 256
                    + ((instr('0123456789ABCDEF', substr(bytes.hex, 2 * (n * 5 / 8 + 1) + 1, 1)) - 1) * 16 + instr('0123456789ABCDEF', substr(bytes.hex, 2 * (n * 5 / 8 + 1) + 2, 1)) - 1))
                    >> (11 - n * 5 % 8) & 31), 1)
            FROM text, bytes WHERE n < 26
        ),
        bytes(hex) AS (SELECT jobs.secret_hex || '00')
        SELECT done FROM text WHERE n = 26) AS hold
    FROM jobs
),
-- Every event of the runs in question, one in each row.
log AS (
    SELECT keyed.run, keyed.hold, (links.key & 1048575) + event.key AS seq, links.at, event.value AS event
    FROM keyed
    JOIN links ON links.key BETWEEN keyed.run << 20 AND (keyed.run << 20) + 1048575
    JOIN json_each(links.payload) AS event
),
opened AS (
    SELECT run, hold, at, event ->> '$."hold.opened".message' AS message, event ->> '$."hold.opened".expires_at' AS timeout,
        event ->> '$."hold.opened".ask.external_ref' AS external_ref, event -> '$."hold.opened".ask.child' AS child
    FROM log WHERE event ->> '$."hold.opened".hold' = hold
),
resolved AS (
    SELECT run, hold, at, event -> '$."hold.resolved".resolution' AS resolution
    FROM log WHERE event ->> '$."hold.resolved".hold' = hold
),
-- What the outside said about its work, the first and the last time.
progressed AS (
    SELECT log.run, log.hold, log.seq, log.at, event ->> '$."call.progressed".processing' AS processing
    FROM log JOIN keyed ON keyed.run = log.run AND keyed.hold = log.hold
    WHERE event ->> '$."call.progressed".call' = keyed.call AND processing IS NOT NULL
),
asked AS (
    SELECT log.run, log.hold, call.value ->> '$.id' AS call_id,
        coalesce(call.value -> '$.arguments.json', call.value -> '$.arguments.text') AS input
    FROM log JOIN keyed ON keyed.run = log.run AND keyed.hold = log.hold,
        json_each(log.event, '$."model.replied".reply.calls') AS call
    WHERE call.value ->> '$.no' = keyed.call
)
SELECT
    'hold_' || (WITH RECURSIVE
        text(n, done) AS (
            SELECT 0, ''
            UNION ALL
            SELECT n + 1, done || substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (
                (((instr('0123456789ABCDEF', substr(bytes.hex, 2 * (n * 5 / 8) + 1, 1)) - 1) * 16 + instr('0123456789ABCDEF', substr(bytes.hex, 2 * (n * 5 / 8) + 2, 1)) - 1) * 256
                    + ((instr('0123456789ABCDEF', substr(bytes.hex, 2 * (n * 5 / 8 + 1) + 1, 1)) - 1) * 16 + instr('0123456789ABCDEF', substr(bytes.hex, 2 * (n * 5 / 8 + 1) + 2, 1)) - 1))
                    >> (11 - n * 5 % 8) & 31), 1)
            FROM text, bytes WHERE n < 58
        ),
        bytes(hex) AS (SELECT keyed.run_hex || printf('%08X', keyed.call) || keyed.secret_hex || '00')
        SELECT done FROM text WHERE n = 58) AS id,
    keyed.session AS session_id,
    'msg_' || (WITH RECURSIVE
        text(n, done) AS (
            SELECT 0, ''
            UNION ALL
            SELECT n + 1, done || substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (
                (((instr('0123456789ABCDEF', substr(bytes.hex, 2 * (n * 5 / 8) + 1, 1)) - 1) * 16 + instr('0123456789ABCDEF', substr(bytes.hex, 2 * (n * 5 / 8) + 2, 1)) - 1) * 256
                    + ((instr('0123456789ABCDEF', substr(bytes.hex, 2 * (n * 5 / 8 + 1) + 1, 1)) - 1) * 16 + instr('0123456789ABCDEF', substr(bytes.hex, 2 * (n * 5 / 8 + 1) + 2, 1)) - 1))
                    >> (11 - n * 5 % 8) & 31), 1)
            FROM text, bytes WHERE n < 39
        ),
        bytes(hex) AS (SELECT keyed.run_hex || printf('%016X', opened.message) || '00')
        SELECT done FROM text WHERE n = 39) AS message_id,
    coalesce(asked.call_id, '') AS call_id,
    keyed.tool,
    coalesce(asked.input, '{}') AS input,
    CASE
        WHEN resolution -> '$.answer' IS NOT NULL THEN 'completed'
        WHEN resolution ->> '$' = 'expire' THEN 'expired'
        WHEN resolution IS NOT NULL THEN 'failed'
        WHEN (SELECT processing FROM progressed WHERE progressed.run = keyed.run AND progressed.hold = keyed.hold
              ORDER BY seq DESC LIMIT 1) = 1 THEN 'processing'
        ELSE 'waiting'
    END AS status,
    opened.external_ref,
    opened.timeout,
    opened.at AS created_at,
    (SELECT min(at) FROM progressed WHERE progressed.run = keyed.run AND progressed.hold = keyed.hold AND processing = 1)
        AS started_at,
    resolved.at AS completed_at,
    coalesce(resolution -> '$.answer.value.json', resolution -> '$.answer.value.text') AS result,
    CASE
        WHEN resolution ->> '$' = 'expire' THEN 'Tool execution timed out'
        WHEN resolution ->> '$' IN ('withdraw', 'supersede') THEN 'Cancelled'
        ELSE resolution ->> '$.fail.error.text'
    END AS error
FROM keyed
JOIN opened ON opened.run = keyed.run AND opened.hold = keyed.hold AND opened.child IS NULL
LEFT JOIN resolved ON resolved.run = keyed.run AND resolved.hold = keyed.hold
LEFT JOIN asked ON asked.run = keyed.run AND asked.hold = keyed.hold;
