-- The first schema. Forward only: a change is a new file with the next number.
-- Text ids become integers inside: names, sessions and runs each have a number. Data tables begin with the tenant.

-- Tenants, agents, tools, users, inboxes, definitions' digests, audiences: every short text that repeats.
CREATE TABLE names (
    no   INTEGER PRIMARY KEY,
    text TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE tenants (
    tenant     INTEGER PRIMARY KEY,          -- names.no
    tag        INTEGER NOT NULL UNIQUE,      -- stands in the ids of its runs
    created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE sessions (
    no         INTEGER PRIMARY KEY,
    tenant     INTEGER NOT NULL,
    agent      INTEGER NOT NULL,
    session    TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    closed     INTEGER NOT NULL DEFAULT 0,
    metadata   TEXT                          -- a JSON object; NULL is the empty one
) STRICT;
CREATE UNIQUE INDEX sessions_by_name ON sessions (tenant, agent, session);

-- One row for each run: what never changes, the fold of its events, and beside the fold lease and due time.
CREATE TABLE runs (
    no           INTEGER PRIMARY KEY,
    id           BLOB    NOT NULL,           -- 16 bytes
    tenant       INTEGER NOT NULL,
    agent        INTEGER NOT NULL,
    session      INTEGER NOT NULL,           -- sessions.no
    owner        INTEGER NOT NULL,
    driver       INTEGER NOT NULL,
    started_at   INTEGER NOT NULL,
    parent       TEXT,                       -- JSON, for a sub-run
    inbox        INTEGER,
    inbox_facts  TEXT,                       -- JSON: type, target agent, attempts
    priority     INTEGER,
    seq          INTEGER NOT NULL,
    at           INTEGER NOT NULL,
    head         BLOB    NOT NULL,           -- hash of the last link
    definition   INTEGER NOT NULL,
    phase        INTEGER NOT NULL,
    claimable_at INTEGER,
    fold         INTEGER NOT NULL,           -- version of the fold that wrote `state`
    lease_node   BLOB,
    lease_until  INTEGER,
    wake_at      INTEGER,
    due_at       INTEGER,                    -- as in `due`
    state        TEXT    NOT NULL            -- JSON: the rest of the fold
) STRICT;
CREATE UNIQUE INDEX runs_by_id ON runs (id);
CREATE INDEX runs_by_session ON runs (session);
CREATE INDEX runs_by_agent ON runs (tenant, agent);
CREATE INDEX runs_claimable ON runs (tenant, inbox, priority DESC) WHERE claimable_at IS NOT NULL;

-- One row for each append. The key is run number << 20 | number of the first event.
CREATE TABLE links (
    key        INTEGER PRIMARY KEY,
    count      INTEGER NOT NULL,
    at         INTEGER NOT NULL,
    actor      INTEGER NOT NULL,             -- names.no
    hash       BLOB    NOT NULL,
    salt       BLOB,                         -- NULL when erased
    payload    TEXT,                         -- JSON array of events; NULL when erased
    commitment BLOB                          -- only when erased: otherwise it follows from salt and payload
) STRICT;

-- Values over 16 KiB, named by digest within their run, so that erasing a run erases them.
CREATE TABLE blobs (
    run    INTEGER NOT NULL,
    digest BLOB    NOT NULL,
    value  TEXT    NOT NULL,
    PRIMARY KEY (run, digest)
) STRICT, WITHOUT ROWID;

-- What an open hold says beyond its number stands in the fold of its run; `record` keeps it once it is decided.
CREATE TABLE holds (
    no       INTEGER PRIMARY KEY,
    run      INTEGER NOT NULL,
    call     INTEGER NOT NULL,
    secret   BLOB    NOT NULL,
    tenant   INTEGER NOT NULL,
    agent    INTEGER NOT NULL,
    tool     INTEGER,
    kind     INTEGER NOT NULL,
    audience TEXT,                           -- numbers of those who see it, while it is open
    closed   INTEGER NOT NULL DEFAULT 0,
    record   TEXT
) STRICT;
CREATE INDEX holds_by_run ON holds (run, call);
CREATE INDEX holds_by_agent ON holds (tenant, agent) WHERE closed = 0;
CREATE INDEX holds_by_tool ON holds (tenant, tool) WHERE closed = 0;

CREATE TABLE audience (
    who  INTEGER NOT NULL,                   -- names.no of tenant and user, group or role
    hold INTEGER NOT NULL,
    PRIMARY KEY (who, hold)
) STRICT, WITHOUT ROWID;

-- Work: one row for each run that somebody should look at by itself, or whose lease may run out.
CREATE TABLE due (
    run   INTEGER PRIMARY KEY,
    agent INTEGER NOT NULL,                  -- names.no of tenant and agent: turns are taken by it
    shard INTEGER NOT NULL,
    at    INTEGER NOT NULL
) STRICT;
CREATE INDEX due_by_agent ON due (agent, at);

CREATE TABLE notices (
    no           INTEGER PRIMARY KEY,
    shard        INTEGER NOT NULL,
    due_at       INTEGER,                    -- NULL when it is given up
    subscription INTEGER NOT NULL,           -- names.no
    run          INTEGER NOT NULL,
    first_seq    INTEGER NOT NULL,
    latest       INTEGER NOT NULL,
    attempts     INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE UNIQUE INDEX notices_live ON notices (run, subscription) WHERE due_at IS NOT NULL;
CREATE INDEX notices_due ON notices (due_at) WHERE due_at IS NOT NULL;

CREATE TABLE keys (
    tenant     INTEGER NOT NULL,
    key        TEXT    NOT NULL,
    request    BLOB    NOT NULL,
    run        INTEGER NOT NULL,
    seq        INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX keys_by_expiry ON keys (expires_at);

CREATE TABLE counters (
    tenant INTEGER NOT NULL,
    name   TEXT    NOT NULL,
    value  INTEGER NOT NULL,
    PRIMARY KEY (tenant, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE definitions (
    tenant INTEGER NOT NULL,
    digest BLOB    NOT NULL,
    bytes  BLOB    NOT NULL,
    PRIMARY KEY (tenant, digest)
) STRICT, WITHOUT ROWID;

-- Tables of later parts of the product. They exist from the first schema so that a store need not be changed for
-- them while runs wait in it.
CREATE TABLE credentials (
    tenant     INTEGER NOT NULL,
    prefix     TEXT    NOT NULL,
    hash       BLOB    NOT NULL,
    facts      TEXT    NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER,
    PRIMARY KEY (tenant, prefix)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX credentials_by_prefix ON credentials (prefix);

CREATE TABLE grants (
    tenant     INTEGER NOT NULL,
    id         TEXT    NOT NULL,
    facts      TEXT    NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER,
    PRIMARY KEY (tenant, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE subscriptions (
    tenant INTEGER NOT NULL,
    id     TEXT    NOT NULL,
    facts  TEXT    NOT NULL,
    PRIMARY KEY (tenant, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE heads (
    tenant    INTEGER NOT NULL,
    no        INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    body      TEXT    NOT NULL,
    signature BLOB    NOT NULL,
    PRIMARY KEY (tenant, no)
) STRICT, WITHOUT ROWID;

CREATE TABLE audit (
    tenant INTEGER NOT NULL,
    no     INTEGER NOT NULL,
    at     INTEGER NOT NULL,
    entry  TEXT    NOT NULL,
    PRIMARY KEY (tenant, no)
) STRICT, WITHOUT ROWID;

CREATE TABLE nodes (
    node       BLOB PRIMARY KEY,
    facts      TEXT    NOT NULL,
    seen_until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE shards (
    shard INTEGER PRIMARY KEY,
    node  BLOB    NOT NULL,
    until INTEGER NOT NULL
) STRICT;
