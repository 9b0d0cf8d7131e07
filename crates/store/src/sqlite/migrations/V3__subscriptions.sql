-- Who outside is told of what. The table was empty until now: nothing wrote it.
ALTER TABLE subscriptions ADD COLUMN topic  TEXT    NOT NULL DEFAULT '';  -- which runs: the tenant's, an agent's, one
ALTER TABLE subscriptions ADD COLUMN wants  INTEGER NOT NULL DEFAULT 0;   -- kinds of events, as bits
ALTER TABLE subscriptions ADD COLUMN active INTEGER NOT NULL DEFAULT 0;
CREATE INDEX subscriptions_by_topic ON subscriptions (tenant, topic) WHERE active = 1;

-- Notices that were given up. Their numbers are never used again: people name them.
CREATE TABLE dead_letters (
    no           INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant       INTEGER NOT NULL,
    shard        INTEGER NOT NULL,
    subscription INTEGER NOT NULL,           -- names.no
    run          INTEGER NOT NULL,
    first_seq    INTEGER NOT NULL,
    latest       INTEGER NOT NULL,
    attempts     INTEGER NOT NULL,
    at           INTEGER NOT NULL,
    why          TEXT    NOT NULL
) STRICT;
CREATE INDEX dead_letters_by_subscription ON dead_letters (tenant, subscription, no);
