-- A conversation belongs to a user: its name is theirs, and others of the same name are others'. One that had runs of several
-- users stays with whoever began it; the others get one of their own, as empty or as closed as it was.
ALTER TABLE sessions ADD COLUMN owner text COLLATE "C" NOT NULL DEFAULT '';
UPDATE sessions s SET owner = coalesce((SELECT r.owner FROM runs r WHERE r.tenant = s.tenant AND r.agent = s.agent
    AND r.session = s.session ORDER BY r.no LIMIT 1), '');
ALTER TABLE sessions DROP CONSTRAINT sessions_pkey;
INSERT INTO sessions (tenant, agent, session, owner, created_at, updated_at, closed, no)
    SELECT r.tenant, r.agent, r.session, r.owner, min(r.started_at), min(r.started_at), s.closed, min(r.no)
    FROM runs r JOIN sessions s ON s.tenant = r.tenant AND s.agent = r.agent AND s.session = r.session
    WHERE r.owner COLLATE "C" <> s.owner GROUP BY r.tenant, r.agent, r.session, r.owner, s.closed;
ALTER TABLE sessions ADD PRIMARY KEY (tenant, agent, session, owner);
CREATE INDEX sessions_by_owner ON sessions (tenant, owner, no);
DROP INDEX runs_by_session;
CREATE INDEX runs_by_session ON runs (tenant, agent, session, owner, no);

-- The runs of a user: what most callers may see.
CREATE INDEX runs_by_owner ON runs (tenant, owner, no);

-- Whose subscription it is: deliveries take turns by it, and lists and caps go by it.
ALTER TABLE subscriptions ADD COLUMN owner text COLLATE "C" NOT NULL DEFAULT '';
UPDATE subscriptions SET owner = coalesce(tenant || ' ' || (facts::json -> 'owner' ->> 'user'), '');
CREATE INDEX subscriptions_by_owner ON subscriptions (tenant, owner, id);
CREATE INDEX subscriptions_broad ON subscriptions (tenant, owner) WHERE active AND left(topic, 4) <> 'run ';
ALTER TABLE notices ADD COLUMN owner text COLLATE "C" NOT NULL DEFAULT '';
UPDATE notices n SET owner = s.owner FROM runs r, subscriptions s
    WHERE r.id = n.run AND s.tenant = r.tenant AND convert_to(s.id, 'UTF8') = n.subscription;
DROP INDEX notices_due;
CREATE INDEX notices_due ON notices (owner, due_at, no) WHERE due_at IS NOT NULL;
ALTER TABLE dead_letters ADD COLUMN owner text COLLATE "C" NOT NULL DEFAULT '';
UPDATE dead_letters d SET owner = s.owner FROM subscriptions s
    WHERE s.tenant = d.tenant AND convert_to(s.id, 'UTF8') = d.subscription;
