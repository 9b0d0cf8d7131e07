-- The first schema. Forward only: a change is a new file with the next number.
-- Keys are natural (run ids, names) or made by the nodes (`no`); there are no sequences. Names have no control
-- characters and are text; what anybody may choose (keys, counters, subscriptions, audiences, large values) may contain
-- NUL, which text may not, and is bytea. Order is that of bytes.

CREATE TABLE tenants (
    tenant     text COLLATE "C" PRIMARY KEY,
    tag        bigint NOT NULL,                  -- stands in the ids of its runs
    created_at bigint NOT NULL
);

CREATE TABLE sessions (
    tenant     text COLLATE "C" NOT NULL,
    agent      text COLLATE "C" NOT NULL,
    session    text COLLATE "C" NOT NULL,
    created_at bigint  NOT NULL,
    updated_at bigint  NOT NULL,
    closed     boolean NOT NULL DEFAULT false,
    metadata   text    NOT NULL DEFAULT '{}',
    PRIMARY KEY (tenant, agent, session)
);

-- One row for each run: what never changes, the fold of its events, and beside the fold lease and due time.
-- No index names a column that an append changes, so that every update stays on its page (HOT); the room that this
-- needs is left free.
CREATE TABLE runs (
    id          uuid PRIMARY KEY,
    no          bigint NOT NULL,                 -- order of beginning
    tenant      text COLLATE "C" NOT NULL,
    agent       text COLLATE "C" NOT NULL,
    session     text COLLATE "C" NOT NULL,
    owner       text   NOT NULL,
    driver      smallint NOT NULL,
    started_at  bigint NOT NULL,
    parent      text,                            -- JSON, for a sub-run
    inbox       text COLLATE "C",
    inbox_facts text,                            -- JSON: type, target agent, attempts
    priority    smallint,
    seq         bigint NOT NULL,
    at          bigint NOT NULL,
    head        bytea  NOT NULL,                 -- hash of the last link
    definition  bytea  NOT NULL,                 -- its digest
    phase       smallint NOT NULL,
    fold        integer NOT NULL,                -- version of the fold that wrote `state`
    lease_node  uuid,
    lease_until bigint,
    wake_at     bigint,
    wants_at    bigint,                          -- when the fold wants somebody to look
    due_at      bigint,                          -- as in `due`
    state       text   NOT NULL                  -- JSON: the rest of the fold
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX runs_by_no ON runs (no);
CREATE INDEX runs_by_agent ON runs (tenant, agent, no);
CREATE INDEX runs_by_session ON runs (tenant, agent, session, no);

-- What workers of an inbox may claim, and from when on.
CREATE TABLE claimable (
    run      uuid PRIMARY KEY,
    tenant   text COLLATE "C" NOT NULL,
    inbox    text COLLATE "C" NOT NULL,
    priority smallint NOT NULL,
    no       bigint NOT NULL,
    at       bigint NOT NULL
);
CREATE INDEX claimable_by_inbox ON claimable (tenant, inbox, priority DESC, no);

-- One row for each append.
CREATE TABLE links (
    run        uuid   NOT NULL,
    first      bigint NOT NULL,                  -- number of the first event
    count      integer NOT NULL,
    at         bigint NOT NULL,
    actor      text   NOT NULL,
    hash       bytea  NOT NULL,
    salt       uuid,                             -- NULL when erased
    payload    text,                             -- JSON array of events; NULL when erased
    commitment bytea,                            -- only when erased: otherwise it follows from salt and payload
    PRIMARY KEY (run, first)
);

-- Values over 16 KiB, named by digest within their run, so that erasing a run erases them.
CREATE TABLE blobs (
    run    uuid  NOT NULL,
    digest bytea NOT NULL,
    value  bytea NOT NULL,                       -- UTF-8
    PRIMARY KEY (run, digest)
);

-- What an open hold says beyond its number stands in the fold of its run; `record` keeps it once it is decided.
CREATE TABLE holds (
    no     bigint PRIMARY KEY,
    run    uuid    NOT NULL,
    call   bigint  NOT NULL,
    secret uuid    NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    agent  text COLLATE "C" NOT NULL,
    tool   text COLLATE "C",
    kind   smallint NOT NULL,
    closed boolean NOT NULL DEFAULT false,
    record text
);
CREATE INDEX holds_by_run ON holds (run, call);
CREATE INDEX holds_by_tenant ON holds (tenant, no) WHERE NOT closed;
CREATE INDEX holds_by_agent ON holds (tenant, agent, no) WHERE NOT closed;
CREATE INDEX holds_by_tool ON holds (tenant, tool, no) WHERE NOT closed;

-- Who may see and decide an open hold.
CREATE TABLE audience (
    tenant text COLLATE "C" NOT NULL,
    who    bytea  NOT NULL,
    hold   bigint NOT NULL,
    PRIMARY KEY (tenant, who, hold)
);
CREATE INDEX audience_by_hold ON audience (hold);

-- Work: one row for each run that somebody should look at by itself, or whose lease may run out.
CREATE TABLE due (
    run    uuid PRIMARY KEY,
    no     bigint NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    agent  text COLLATE "C" NOT NULL,
    shard  smallint NOT NULL,
    at     bigint NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
CREATE INDEX due_by_agent ON due (tenant, agent, at, no);

CREATE TABLE notices (
    no           bigint PRIMARY KEY,
    shard        smallint NOT NULL,
    due_at       bigint,                         -- NULL when it is given up
    subscription bytea  NOT NULL,
    run          uuid   NOT NULL,
    first_seq    bigint NOT NULL,
    latest       bigint NOT NULL,
    attempts     integer NOT NULL DEFAULT 0
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
CREATE UNIQUE INDEX notices_live ON notices (run, subscription) WHERE due_at IS NOT NULL;
CREATE INDEX notices_due ON notices (due_at, no) WHERE due_at IS NOT NULL;

CREATE TABLE keys (
    tenant     text COLLATE "C" NOT NULL,
    key        bytea  NOT NULL,
    request    bytea  NOT NULL,
    run        uuid   NOT NULL,
    seq        bigint NOT NULL,
    expires_at bigint NOT NULL,
    PRIMARY KEY (tenant, key)
);
CREATE INDEX keys_by_expiry ON keys (expires_at);

CREATE TABLE counters (
    tenant text COLLATE "C" NOT NULL,
    name   bytea  NOT NULL,
    value  bigint NOT NULL,
    PRIMARY KEY (tenant, name)
) WITH (fillfactor = 50);

CREATE TABLE definitions (
    tenant text COLLATE "C" NOT NULL,
    digest bytea NOT NULL,
    bytes  bytea NOT NULL,
    PRIMARY KEY (tenant, digest)
);

CREATE TABLE credentials (
    prefix     text COLLATE "C" PRIMARY KEY,
    tenant     text COLLATE "C" NOT NULL,
    hash       bytea NOT NULL,
    facts      text  NOT NULL,
    expires_at bigint,
    revoked_at bigint
);
CREATE INDEX credentials_by_tenant ON credentials (tenant, prefix);

-- Who is there, and which shards of the work each has until when.
CREATE TABLE nodes (
    node       uuid PRIMARY KEY,
    facts      text   NOT NULL,
    seen_until bigint NOT NULL
);

CREATE TABLE shards (
    shard smallint PRIMARY KEY,
    node  uuid,
    until bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
INSERT INTO shards (shard) SELECT generate_series(0, 255);

-- Tables of later parts of the product. They exist from the first schema so that a store need not be changed for
-- them while runs wait in it.
CREATE TABLE grants (
    tenant     text COLLATE "C" NOT NULL,
    id         text COLLATE "C" NOT NULL,
    facts      text NOT NULL,
    expires_at bigint,
    revoked_at bigint,
    PRIMARY KEY (tenant, id)
);

CREATE TABLE subscriptions (
    tenant text COLLATE "C" NOT NULL,
    id     text COLLATE "C" NOT NULL,
    facts  text NOT NULL,
    PRIMARY KEY (tenant, id)
);

CREATE TABLE heads (
    tenant    text COLLATE "C" NOT NULL,
    no        bigint NOT NULL,
    at        bigint NOT NULL,
    body      text   NOT NULL,
    signature bytea  NOT NULL,
    PRIMARY KEY (tenant, no)
);

CREATE TABLE audit (
    tenant text COLLATE "C" NOT NULL,
    no     bigint NOT NULL,
    at     bigint NOT NULL,
    entry  text   NOT NULL,
    PRIMARY KEY (tenant, no)
);
