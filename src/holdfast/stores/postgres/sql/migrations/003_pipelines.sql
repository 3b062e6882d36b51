-- What data pipelines need: consumers with their claim batches, staged messages, and sinks with what they published.

CREATE TABLE {schema}.consumers (
    queue integer NOT NULL,
    name text NOT NULL,
    state json NOT NULL,                    -- as the client reads it
    PRIMARY KEY (queue, name)
);

-- A claim batch is the rows of q_ in a range that carry its token.
CREATE TABLE {schema}.batches (
    queue integer NOT NULL,
    consumer text NOT NULL,
    seq bigint NOT NULL,
    token bigint NOT NULL,
    rows bigint NOT NULL,
    size bigint NOT NULL,                   -- bytes of payload
    cut_ranks smallint[] NOT NULL,          -- every so many rows, and the last one
    cut_ids uuid[] NOT NULL,
    PRIMARY KEY (queue, consumer, seq)
);

CREATE TABLE {schema}.sinks (
    queue integer NOT NULL,
    name text NOT NULL,
    batch bigint NOT NULL,
    at timestamptz NOT NULL,
    PRIMARY KEY (queue, name)
);

-- Durable enough: a publish that does not find every row fails, and the batch is written again.
CREATE UNLOGGED TABLE {schema}.staged (
    stage uuid NOT NULL,                    -- a UUIDv7: its time says when it may be swept
    place integer NOT NULL,
    id uuid NOT NULL,
    rank smallint NOT NULL,
    due timestamptz,
    content_type text,
    headers json,
    key bytea,
    payload bytea NOT NULL,
    PRIMARY KEY (stage, place)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);

CREATE OR REPLACE FUNCTION {schema}.drop_queue(old_name text) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    old record;
    kind text;
BEGIN
    DELETE FROM {schema}.queues WHERE name = old_name RETURNING id, slug INTO old;
    IF old IS NULL THEN
        RETURN false;
    END IF;
    DELETE FROM {schema}.keys WHERE queue = old.id;
    DELETE FROM {schema}.deltas WHERE queue = old.id;
    DELETE FROM {schema}.settled WHERE queue = old.id;
    DELETE FROM {schema}.consumers WHERE queue = old.id;
    DELETE FROM {schema}.batches WHERE queue = old.id;
    DELETE FROM {schema}.sinks WHERE queue = old.id;
    FOREACH kind IN ARRAY ARRAY['q_', 'w_', 'd_', 'a_'] LOOP
        EXECUTE format('DROP TABLE %I.%I', {schema_text}, kind || old.slug);
    END LOOP;
    RETURN true;
END $$;
