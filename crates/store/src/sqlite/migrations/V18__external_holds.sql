-- S2-27: what the calls of the view `pending_tool_calls` are found by, each in a row beside its hold, kept by every append
-- that changes it: by conversation, by status, by when they run out, and by run. Holds of other kinds have none.
CREATE TABLE external_holds (
    hold    INTEGER PRIMARY KEY,             -- holds.no
    tenant  INTEGER NOT NULL,
    run     INTEGER NOT NULL,                -- runs.no
    session TEXT    NOT NULL,
    status  TEXT    NOT NULL,                -- waiting, processing, completed, failed, expired
    timeout INTEGER                          -- milliseconds
) STRICT;
INSERT INTO external_holds (hold, tenant, run, session, status, timeout)
SELECT h.no, h.tenant, h.run, v.session_id, v.status, v.timeout
FROM holds h JOIN runs r ON r.no = h.run
JOIN pending_tool_calls v ON v.id = 'hold_' || (WITH RECURSIVE
        text(n, done) AS (
            SELECT 0, ''
            UNION ALL
            SELECT n + 1, done || substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (
                (((instr('0123456789ABCDEF', substr(bytes.hex, 2 * (n * 5 / 8) + 1, 1)) - 1) * 16 + instr('0123456789ABCDEF', substr(bytes.hex, 2 * (n * 5 / 8) + 2, 1)) - 1) * 256
                    + ((instr('0123456789ABCDEF', substr(bytes.hex, 2 * (n * 5 / 8 + 1) + 1, 1)) - 1) * 16 + instr('0123456789ABCDEF', substr(bytes.hex, 2 * (n * 5 / 8 + 1) + 2, 1)) - 1))
                    >> (11 - n * 5 % 8) & 31), 1)
            FROM text, bytes WHERE n < 58
        ),
        bytes(hex) AS (SELECT hex(r.id) || printf('%08X', h.call) || hex(h.secret) || '00')
        SELECT done FROM text WHERE n = 58)
WHERE h.kind = 3;
CREATE INDEX external_holds_by_run ON external_holds (tenant, run);
CREATE INDEX external_holds_by_session ON external_holds (session);
CREATE INDEX external_holds_by_status ON external_holds (status);
CREATE INDEX external_holds_by_timeout ON external_holds (timeout) WHERE timeout IS NOT NULL;

-- The same columns as before. What a query asks of session, status and timeout is looked for in those indexes; everything
-- else is read from the log of the calls that were found.
DROP VIEW pending_tool_calls;
CREATE VIEW pending_tool_calls AS
WITH keyed AS (
    SELECT x.session, x.status, x.timeout, h.run, h.call, names.text AS tool, hex(r.id) AS run_hex, hex(h.secret) AS secret_hex,
        h.call || '-' || (WITH RECURSIVE
        text(n, done) AS (
            SELECT 0, ''
            UNION ALL
            SELECT n + 1, done || substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (
                (((instr('0123456789ABCDEF', substr(bytes.hex, 2 * (n * 5 / 8) + 1, 1)) - 1) * 16 + instr('0123456789ABCDEF', substr(bytes.hex, 2 * (n * 5 / 8) + 2, 1)) - 1) * 256
                    + ((instr('0123456789ABCDEF', substr(bytes.hex, 2 * (n * 5 / 8 + 1) + 1, 1)) - 1) * 16 + instr('0123456789ABCDEF', substr(bytes.hex, 2 * (n * 5 / 8 + 1) + 2, 1)) - 1))
                    >> (11 - n * 5 % 8) & 31), 1)
            FROM text, bytes WHERE n < 26
        ),
        bytes(hex) AS (SELECT hex(h.secret) || '00')
        SELECT done FROM text WHERE n = 26) AS hold
    FROM external_holds x
    JOIN holds h ON h.no = x.hold
    JOIN runs r ON r.no = h.run
    LEFT JOIN names ON names.no = h.tool
),
-- With the events that opened and ended them, and the first one that said that somebody works on it.
told AS (
    SELECT keyed.*,
        (SELECT json_object('at', links.at, 'event', json(event.value)) FROM links, json_each(links.payload) AS event
            WHERE links.key BETWEEN keyed.run << 20 AND (keyed.run << 20) + 1048575
            AND event.value ->> '$."hold.opened".hold' = keyed.hold LIMIT 1) AS opened,
        (SELECT json_object('at', links.at, 'event', json(event.value)) FROM links, json_each(links.payload) AS event
            WHERE links.key BETWEEN keyed.run << 20 AND (keyed.run << 20) + 1048575
            AND event.value ->> '$."hold.resolved".hold' = keyed.hold LIMIT 1) AS resolved,
        (SELECT min(links.at) FROM links, json_each(links.payload) AS event
            WHERE links.key BETWEEN keyed.run << 20 AND (keyed.run << 20) + 1048575
            AND event.value ->> '$."call.progressed".call' = keyed.call
            AND event.value ->> '$."call.progressed".processing' = 1) AS started_at,
        (SELECT call.value FROM links, json_each(links.payload) AS event,
            json_each(event.value, '$."model.replied".reply.calls') AS call
            WHERE links.key BETWEEN keyed.run << 20 AND (keyed.run << 20) + 1048575
            AND call.value ->> '$.no' = keyed.call LIMIT 1) AS asked
    FROM keyed
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
        bytes(hex) AS (SELECT told.run_hex || printf('%08X', told.call) || told.secret_hex || '00')
        SELECT done FROM text WHERE n = 58) AS id,
    told.session AS session_id,
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
        bytes(hex) AS (SELECT told.run_hex || printf('%016X', told.opened ->> '$.event."hold.opened".message') || '00')
        SELECT done FROM text WHERE n = 39) AS message_id,
    coalesce(told.asked ->> '$.id', '') AS call_id,
    told.tool,
    coalesce(told.asked -> '$.arguments.json', told.asked -> '$.arguments.text', '{}') AS input,
    told.status,
    told.opened ->> '$.event."hold.opened".ask.external_ref' AS external_ref,
    told.timeout,
    told.opened ->> '$.at' AS created_at,
    told.started_at,
    told.resolved ->> '$.at' AS completed_at,
    coalesce(told.resolved -> '$.event."hold.resolved".resolution.answer.value.json',
        told.resolved -> '$.event."hold.resolved".resolution.answer.value.text') AS result,
    CASE
        WHEN told.resolved ->> '$.event."hold.resolved".resolution' = 'expire' THEN 'Tool execution timed out'
        WHEN told.resolved ->> '$.event."hold.resolved".resolution' IN ('withdraw', 'supersede') THEN 'Cancelled'
        ELSE told.resolved ->> '$.event."hold.resolved".resolution.fail.error.text'
    END AS error
FROM told
-- A sub-run that is waited for is nobody else's job; of an erased run nothing is left to tell.
WHERE told.opened IS NOT NULL AND told.opened -> '$.event."hold.opened".ask.child' IS NULL;
