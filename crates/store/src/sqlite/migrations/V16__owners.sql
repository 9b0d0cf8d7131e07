-- A conversation belongs to a user: its name is theirs, and others of the same name are others'. One that had runs of several
-- users stays with whoever began it; the others get one of their own, as empty or as closed as it was.
ALTER TABLE sessions ADD COLUMN owner INTEGER NOT NULL DEFAULT 0;  -- names.no
UPDATE sessions SET owner =
    coalesce((SELECT r.owner FROM runs r WHERE r.session = sessions.no ORDER BY r.no LIMIT 1), 0);
DROP INDEX sessions_by_name;
INSERT INTO sessions (tenant, agent, session, owner, created_at, updated_at, closed)
    SELECT s.tenant, s.agent, s.session, r.owner, min(r.started_at), min(r.started_at), s.closed
    FROM runs r JOIN sessions s ON s.no = r.session WHERE r.owner <> s.owner GROUP BY s.no, r.owner;
CREATE UNIQUE INDEX sessions_by_name ON sessions (tenant, agent, session, owner);
CREATE INDEX sessions_by_owner ON sessions (tenant, owner);
UPDATE runs SET session =
    (SELECT n.no FROM sessions s
     JOIN sessions n ON n.tenant = s.tenant AND n.agent = s.agent AND n.session = s.session AND n.owner = runs.owner
     WHERE s.no = runs.session)
    WHERE owner <> (SELECT s.owner FROM sessions s WHERE s.no = runs.session);

-- The runs of a user: what most callers may see.
CREATE INDEX runs_by_owner ON runs (tenant, owner);

-- Whose subscription it is: deliveries take turns by it, and lists and caps go by it.
ALTER TABLE subscriptions ADD COLUMN owner TEXT NOT NULL DEFAULT '';
UPDATE subscriptions SET owner = coalesce((SELECT n.text FROM names n WHERE n.no = subscriptions.tenant) || ' '
    || CASE WHEN json_valid(facts) THEN facts ->> '$.owner.user' END, '');
CREATE INDEX subscriptions_by_owner ON subscriptions (tenant, owner, id);
CREATE INDEX subscriptions_broad ON subscriptions (tenant, owner) WHERE active = 1 AND substr(topic, 1, 4) <> 'run ';
ALTER TABLE notices ADD COLUMN owner TEXT NOT NULL DEFAULT '';
UPDATE notices SET owner = coalesce((SELECT s.owner FROM names n JOIN runs r ON r.no = notices.run
    JOIN subscriptions s ON s.tenant = r.tenant AND s.id = n.text WHERE n.no = notices.subscription), '');
DROP INDEX notices_due;
CREATE INDEX notices_due ON notices (owner, due_at) WHERE due_at IS NOT NULL;
ALTER TABLE dead_letters ADD COLUMN owner TEXT NOT NULL DEFAULT '';
UPDATE dead_letters SET owner = coalesce((SELECT s.owner FROM names n
    JOIN subscriptions s ON s.tenant = dead_letters.tenant AND s.id = n.text WHERE n.no = dead_letters.subscription), '');
