-- Who outside is told of what. The table was empty until now: nothing wrote it.
ALTER TABLE subscriptions ADD COLUMN topic  TEXT    NOT NULL DEFAULT '';  -- which runs: the tenant's, an agent's, one
ALTER TABLE subscriptions ADD COLUMN wants  INTEGER NOT NULL DEFAULT 0;   -- kinds of events, as bits
ALTER TABLE subscriptions ADD COLUMN active INTEGER NOT NULL DEFAULT 0;
CREATE INDEX subscriptions_by_topic ON subscriptions (tenant, topic) WHERE active = 1;

-- Numbers of notices are never used again either: a late word about an old one must not meet a new one.
CREATE TABLE notices_numbered (
    no           INTEGER PRIMARY KEY AUTOINCREMENT,
    shard        INTEGER NOT NULL,
    due_at       INTEGER,
    subscription INTEGER NOT NULL,           -- names.no
    run          INTEGER NOT NULL,
    first_seq    INTEGER NOT NULL,
    latest       INTEGER NOT NULL,
    attempts     INTEGER NOT NULL DEFAULT 0
) STRICT;
INSERT INTO notices_numbered SELECT no, shard, due_at, subscription, run, first_seq, latest, attempts FROM notices;
DROP TABLE notices;
ALTER TABLE notices_numbered RENAME TO notices;
CREATE UNIQUE INDEX notices_live ON notices (run, subscription) WHERE due_at IS NOT NULL;
CREATE INDEX notices_due ON notices (due_at) WHERE due_at IS NOT NULL;

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
