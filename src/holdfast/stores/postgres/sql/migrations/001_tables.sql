-- What all queues share. Tables of one queue are made by create_queue() in 002.

-- The clock of the store: leases, delays and ends are told by it and nothing else.
CREATE FUNCTION {schema}.now() RETURNS timestamptz LANGUAGE sql VOLATILE PARALLEL SAFE
    AS 'SELECT pg_catalog.clock_timestamp()';

CREATE TABLE {schema}.queues (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE,
    slug text NOT NULL UNIQUE,              -- the part of its tables' names that is its own
    options json NOT NULL,                  -- as the client reads them; what SQL needs follows
    max_attempts integer NOT NULL,
    no_retry boolean NOT NULL,              -- an expired lease ends the message
    archive boolean NOT NULL,
    dead_letter text,                       -- NULL: dead letters of its own; '': none, it ends as failed; else a queue
    paused boolean NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL
);

-- Appends that have arrived, by the id of their call (a UUIDv7), for an hour: a repeat adds nothing.
CREATE TABLE {schema}.calls (
    id uuid PRIMARY KEY
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);

-- Settlements of messages that were not kept, for an hour: a repeat is success.
CREATE TABLE {schema}.settled (
    queue integer NOT NULL,
    entry bigint NOT NULL,                  -- token * 4 + action
    ids uuid[] NOT NULL,
    at timestamptz NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);
CREATE INDEX settled_entry ON {schema}.settled (entry);

-- Dedup keys, until they are forgotten.
CREATE TABLE {schema}.keys (
    queue integer NOT NULL,
    key bytea NOT NULL,
    id uuid NOT NULL,
    until timestamptz NOT NULL,
    PRIMARY KEY (queue, key)
);

-- What every statement changed in the counts of its queue: rows are added, never updated, and folded by maintain.
CREATE TABLE {schema}.deltas (
    queue integer NOT NULL,
    day date,                               -- of `archived`: a day's partition leaves as a whole
    live bigint NOT NULL DEFAULT 0,         -- in q_: ready or held
    delayed bigint NOT NULL DEFAULT 0,      -- in w_
    retry bigint NOT NULL DEFAULT 0,        -- in w_
    dead bigint NOT NULL DEFAULT 0,
    archived bigint NOT NULL DEFAULT 0,
    completed bigint NOT NULL DEFAULT 0,
    failed bigint NOT NULL DEFAULT 0
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
