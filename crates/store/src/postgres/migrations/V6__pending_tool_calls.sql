-- S2-27, C8: the calls whose results come from elsewhere, as a table of the async-tool protocol. A view over the log: to
-- be read with any tool for Postgres, never written. The ids are those of the API: five bits of their bytes a letter.
CREATE VIEW pending_tool_calls AS
WITH jobs AS (
    SELECT h.run, h.call, r.session, h.tool, uuid_send(h.run) AS run_bytes, uuid_send(h.secret) AS secret_bytes
    FROM holds h
    JOIN runs r ON r.id = h.run
    WHERE h.kind = 3
),
keyed AS (
    SELECT jobs.*, jobs.call || '-' || (
        SELECT string_agg(substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (
            (get_byte(bytes, n * 5 / 8) * 256 + get_byte(bytes, n * 5 / 8 + 1)) >> (11 - n * 5 % 8) & 31), 1), '' ORDER BY n)
        FROM generate_series(0, 25) AS n, (SELECT jobs.secret_bytes || '\x00'::bytea AS bytes) AS given) AS hold
    FROM jobs
),
-- Every event of the runs in question, one in each row.
log AS (
    SELECT keyed.run, keyed.hold, keyed.call, links.first + event.nth - 1 AS seq, links.at, event.event
    FROM keyed
    JOIN links ON links.run = keyed.run AND links.payload IS NOT NULL
    CROSS JOIN LATERAL json_array_elements(links.payload::json) WITH ORDINALITY AS event (event, nth)
),
opened AS (
    SELECT run, hold, at, (event #>> '{hold.opened,message}')::bigint AS message,
        (event #>> '{hold.opened,expires_at}')::bigint AS timeout,
        event #>> '{hold.opened,ask,external_ref}' AS external_ref, event #> '{hold.opened,ask,child}' AS child
    FROM log WHERE event #>> '{hold.opened,hold}' = hold
),
resolved AS (
    SELECT run, hold, at, event #> '{hold.resolved,resolution}' AS resolution
    FROM log WHERE event #>> '{hold.resolved,hold}' = hold
),
-- What the outside said about its work, the first and the last time.
progressed AS (
    SELECT run, hold, seq, at, (event #>> '{call.progressed,processing}')::boolean AS processing
    FROM log
    WHERE event #>> '{call.progressed,call}' = log.call::text AND event #>> '{call.progressed,processing}' IS NOT NULL
),
asked AS (
    SELECT log.run, log.hold, called ->> 'id' AS call_id,
        coalesce(called #> '{arguments,json}', called #> '{arguments,text}') AS input
    FROM log
    CROSS JOIN LATERAL json_array_elements(log.event #> '{model.replied,reply,calls}') AS called
    WHERE called ->> 'no' = log.call::text
)
SELECT
    'hold_' || (
        SELECT string_agg(substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (
            (get_byte(bytes, n * 5 / 8) * 256 + get_byte(bytes, n * 5 / 8 + 1)) >> (11 - n * 5 % 8) & 31), 1), '' ORDER BY n)
        FROM generate_series(0, 57) AS n, (SELECT keyed.run_bytes || int4send(keyed.call::integer) || keyed.secret_bytes || '\x00'::bytea AS bytes) AS given) AS id,
    keyed.session AS session_id,
    'msg_' || (
        SELECT string_agg(substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (
            (get_byte(bytes, n * 5 / 8) * 256 + get_byte(bytes, n * 5 / 8 + 1)) >> (11 - n * 5 % 8) & 31), 1), '' ORDER BY n)
        FROM generate_series(0, 38) AS n, (SELECT keyed.run_bytes || int8send(opened.message) || '\x00'::bytea AS bytes) AS given) AS message_id,
    coalesce(asked.call_id, '') AS call_id,
    keyed.tool,
    coalesce(asked.input, '{}'::json)::text AS input,
    CASE
        WHEN resolution #> '{answer}' IS NOT NULL THEN 'completed'
        WHEN resolution #>> '{}' = 'expire' THEN 'expired'
        WHEN resolution IS NOT NULL THEN 'failed'
        WHEN (SELECT processing FROM progressed WHERE progressed.run = keyed.run AND progressed.hold = keyed.hold
              ORDER BY seq DESC LIMIT 1) THEN 'processing'
        ELSE 'waiting'
    END AS status,
    opened.external_ref,
    opened.timeout,
    opened.at AS created_at,
    (SELECT min(at) FROM progressed WHERE progressed.run = keyed.run AND progressed.hold = keyed.hold AND processing)
        AS started_at,
    resolved.at AS completed_at,
    coalesce(resolution #> '{answer,value,json}', resolution #> '{answer,value,text}')::text AS result,
    CASE
        WHEN resolution #>> '{}' = 'expire' THEN 'Tool execution timed out'
        WHEN resolution #>> '{}' IN ('withdraw', 'supersede') THEN 'Cancelled'
        ELSE resolution #>> '{fail,error,text}'
    END AS error
FROM keyed
JOIN opened ON opened.run = keyed.run AND opened.hold = keyed.hold AND opened.child IS NULL
LEFT JOIN resolved ON resolved.run = keyed.run AND resolved.hold = keyed.hold
LEFT JOIN asked ON asked.run = keyed.run AND asked.hold = keyed.hold;
