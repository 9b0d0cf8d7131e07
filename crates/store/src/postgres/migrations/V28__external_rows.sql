-- S2-27: what the calls of the view `pending_tool_calls` are found by, each in a row beside its hold: by conversation, by status, by
-- when they run out, and by run. Holds of other kinds have none. Triggers keep them, as nodes of the version before write beside
-- this one while it is rolled out, and know nothing of them; only that somebody works on a call is written by the nodes.
CREATE TABLE external_holds (
    hold    bigint PRIMARY KEY,              -- holds.no
    run     uuid   NOT NULL,
    session text COLLATE "C" NOT NULL,
    status  text COLLATE "C" NOT NULL,       -- waiting, processing, completed, failed, expired
    timeout bigint                           -- milliseconds
);
INSERT INTO external_holds (hold, run, session, status, timeout)
SELECT h.no, h.run, r.session,
    CASE
        WHEN h.closed THEN CASE substring(h.record from '"how":(\d+)') WHEN '4' THEN 'completed' WHEN '6' THEN 'expired' ELSE 'failed' END
        WHEN (SELECT (event #>> '{call.progressed,processing}')::boolean
              FROM links CROSS JOIN LATERAL json_array_elements(links.payload::json) WITH ORDINALITY AS events (event, nth)
              WHERE links.run = h.run AND links.payload LIKE '%"processing":%'
              AND event #>> '{call.progressed,call}' = h.call::text AND event #>> '{call.progressed,processing}' IS NOT NULL
              ORDER BY links.first DESC, nth DESC LIMIT 1) THEN 'processing'
        ELSE 'waiting'
    END,
    CASE WHEN h.closed THEN substring(h.record from '"expires_at":(\d{1,18})')::bigint ELSE nullif(h.expires_at, 0) END
FROM holds h JOIN runs r ON r.id = h.run
WHERE h.kind = 3 AND NOT r.erased;
CREATE INDEX external_holds_by_run ON external_holds (run);
CREATE INDEX external_holds_by_session ON external_holds (session);
CREATE INDEX external_holds_by_status ON external_holds (status);
CREATE INDEX external_holds_by_timeout ON external_holds (timeout) WHERE timeout IS NOT NULL;

CREATE FUNCTION external_hold_opened() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO external_holds (hold, run, session, status, timeout)
    SELECT NEW.no, NEW.run, runs.session, 'waiting', nullif(NEW.expires_at, 0) FROM runs WHERE runs.id = NEW.run
    ON CONFLICT (hold) DO NOTHING;
    RETURN NULL;
END
$$;
CREATE TRIGGER external_hold_opened AFTER INSERT ON holds
    FOR EACH ROW WHEN (NEW.kind = 3) EXECUTE FUNCTION external_hold_opened();

CREATE FUNCTION external_hold_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.closed THEN
        UPDATE external_holds SET status = CASE substring(NEW.record from '"how":(\d+)')
            WHEN '4' THEN 'completed' WHEN '6' THEN 'expired' ELSE 'failed' END WHERE hold = NEW.no;
    ELSE
        UPDATE external_holds SET timeout = nullif(NEW.expires_at, 0) WHERE hold = NEW.no;
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER external_hold_changed AFTER UPDATE OF closed, record, expires_at ON holds
    FOR EACH ROW WHEN (NEW.kind = 3) EXECUTE FUNCTION external_hold_changed();

-- They are gone with the contents of their run.
CREATE FUNCTION external_holds_erased() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM external_holds WHERE run = NEW.id;
    RETURN NULL;
END
$$;
CREATE TRIGGER external_holds_erased AFTER UPDATE OF erased ON runs
    FOR EACH ROW WHEN (NEW.erased) EXECUTE FUNCTION external_holds_erased();

-- The same columns as before. What a query asks of session, status and timeout is looked for in those indexes; everything
-- else is read from the log of the calls that were found.
DROP VIEW IF EXISTS pending_tool_calls;
CREATE VIEW pending_tool_calls AS
SELECT
    'hold_' || (
        SELECT string_agg(substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (
            (get_byte(bytes, n * 5 / 8) * 256 + get_byte(bytes, n * 5 / 8 + 1)) >> (11 - n * 5 % 8) & 31), 1), '' ORDER BY n)
        FROM generate_series(0, 57) AS n, (SELECT uuid_send(x.run) || int4send(h.call::integer) || uuid_send(h.secret) || '\x00'::bytea AS bytes) AS given) AS id,
    x.session AS session_id,
    'msg_' || (
        SELECT string_agg(substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (
            (get_byte(bytes, n * 5 / 8) * 256 + get_byte(bytes, n * 5 / 8 + 1)) >> (11 - n * 5 % 8) & 31), 1), '' ORDER BY n)
        FROM generate_series(0, 38) AS n, (SELECT uuid_send(x.run) || int8send((opened.said ->> 'message')::bigint) || '\x00'::bytea AS bytes) AS given) AS message_id,
    coalesce(asked.call ->> 'id', '') AS call_id,
    h.tool,
    coalesce(asked.call #> '{arguments,json}', asked.call #> '{arguments,text}', '{}'::json)::text AS input,
    x.status,
    opened.said #>> '{ask,external_ref}' AS external_ref,
    x.timeout,
    opened.at AS created_at,
    (SELECT min(links.at) FROM links CROSS JOIN LATERAL json_array_elements(links.payload::json) AS event
        WHERE links.run = x.run AND event #>> '{call.progressed,call}' = h.call::text
        AND event #>> '{call.progressed,processing}' = 'true') AS started_at,
    resolved.at AS completed_at,
    coalesce(resolved.how #> '{answer,value,json}', resolved.how #> '{answer,value,text}')::text AS result,
    CASE
        WHEN resolved.how #>> '{}' = 'expire' THEN 'Tool execution timed out'
        WHEN resolved.how #>> '{}' IN ('withdraw', 'supersede') THEN 'Cancelled'
        ELSE resolved.how #>> '{fail,error,text}'
    END AS error
FROM external_holds x
JOIN holds h ON h.no = x.hold
CROSS JOIN LATERAL (SELECT h.call || '-' || (
        SELECT string_agg(substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + (
            (get_byte(bytes, n * 5 / 8) * 256 + get_byte(bytes, n * 5 / 8 + 1)) >> (11 - n * 5 % 8) & 31), 1), '' ORDER BY n)
        FROM generate_series(0, 25) AS n, (SELECT uuid_send(h.secret) || '\x00'::bytea AS bytes) AS given) AS name) AS keyed
CROSS JOIN LATERAL (
    SELECT links.at, event -> 'hold.opened' AS said
    FROM links CROSS JOIN LATERAL json_array_elements(links.payload::json) AS event
    WHERE links.run = x.run AND event #>> '{hold.opened,hold}' = keyed.name LIMIT 1
) AS opened
LEFT JOIN LATERAL (
    SELECT links.at, event #> '{hold.resolved,resolution}' AS how
    FROM links CROSS JOIN LATERAL json_array_elements(links.payload::json) AS event
    WHERE links.run = x.run AND event #>> '{hold.resolved,hold}' = keyed.name LIMIT 1
) AS resolved ON true
LEFT JOIN LATERAL (
    SELECT called AS call
    FROM links CROSS JOIN LATERAL json_array_elements(links.payload::json) AS event
    CROSS JOIN LATERAL json_array_elements(event #> '{model.replied,reply,calls}') AS called
    WHERE links.run = x.run AND called ->> 'no' = h.call::text LIMIT 1
) AS asked ON true
-- A sub-run that is waited for is nobody else's job.
WHERE opened.said #> '{ask,child}' IS NULL;
