-- Who outside is told of what. The table was empty until now: nothing wrote it.
ALTER TABLE subscriptions ADD COLUMN topic  text COLLATE "C" NOT NULL DEFAULT '';  -- the tenant, an agent, one run
ALTER TABLE subscriptions ADD COLUMN wants  bigint  NOT NULL DEFAULT 0;            -- kinds of events, as bits
ALTER TABLE subscriptions ADD COLUMN active boolean NOT NULL DEFAULT false;
CREATE INDEX subscriptions_by_topic ON subscriptions (tenant, topic) WHERE active;

-- Notices that were given up, under their numbers.
CREATE TABLE dead_letters (
    no           bigint PRIMARY KEY,
    tenant       text COLLATE "C" NOT NULL,
    shard        smallint NOT NULL,
    subscription bytea  NOT NULL,
    run          uuid   NOT NULL,
    first_seq    bigint NOT NULL,
    latest       bigint NOT NULL,
    attempts     integer NOT NULL,
    at           bigint NOT NULL,
    why          text   NOT NULL
);
CREATE INDEX dead_letters_by_subscription ON dead_letters (tenant, subscription, no);
