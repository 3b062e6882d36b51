-- The attempts that did not end a message, the newest last: start, end, worker, error. Most messages have none.
DO $$
DECLARE
    slug text;
    kind text;
BEGIN
    FOR slug IN SELECT queues.slug FROM {schema}.queues LOOP
        FOREACH kind IN ARRAY ARRAY['q_', 'w_', 'd_', 'a_'] LOOP
            EXECUTE format('ALTER TABLE %I.%I ADD COLUMN history jsonb', {schema_text}, kind || slug);
        END LOOP;
    END LOOP;
END $$;

-- As much of a text as is remembered: 200 bytes.
CREATE FUNCTION {schema}.remembered(said text) RETURNS text LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
SELECT CASE WHEN octet_length(left(said, 200)) <= 200 THEN left(said, 200)
    ELSE (SELECT left(said, n) FROM generate_series(200, 50, -1) n WHERE octet_length(left(said, n)) <= 200 LIMIT 1) END
$$;

-- The same history with one attempt more; the newest ten.
CREATE FUNCTION {schema}.with_attempt(history jsonb, began timestamptz, ended timestamptz, worker text, error text)
    RETURNS jsonb LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
SELECT CASE WHEN jsonb_array_length(history) >= 10 THEN history - 0 ELSE coalesce(history, '[]') END || jsonb_build_array(
    jsonb_build_array(date_part('epoch', began), date_part('epoch', ended), {schema}.remembered(worker), {schema}.remembered(error)))
$$;

CREATE OR REPLACE FUNCTION {schema}.make_tables(wanted_slug text) RETURNS void LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    slug text := {schema}.checked_slug(wanted_slug);
    common text :=
        'id uuid NOT NULL, enqueued_at timestamptz NOT NULL, visible_at timestamptz NOT NULL, token bigint,'
        ' attempts integer NOT NULL DEFAULT 0, max_attempts integer, rank smallint NOT NULL,'  -- 255 - priority
        ' recovered boolean NOT NULL DEFAULT false, used bigint[], content_type text, headers json,'
        ' error text, worker text, expires timestamptz, history jsonb, payload bytea NOT NULL';
    vacuum text := 'autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,'
        ' autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.5';
BEGIN
    -- Ready and held. Half of each page is free and no index covers what a claim changes: a claim is a HOT update. The
    -- payload stays last: what a claim changes lies before it, and the log of an update leaves out an end that is the same.
    EXECUTE format('CREATE TABLE %1$I.%2$I (%3$s, PRIMARY KEY (rank, id)) WITH (fillfactor = 50, %4$s)',
        {schema_text}, 'q_' || slug, replace(common, ' payload ', ' claimed_at timestamptz, payload '), vacuum);
    -- Waiting for their time: delayed messages and retries. Claims bring over what is due.
    EXECUTE format('CREATE TABLE %1$I.%2$I (%3$s, waits text NOT NULL, PRIMARY KEY (id)) WITH (%4$s)',
        {schema_text}, 'w_' || slug, common, vacuum);
    EXECUTE format('CREATE INDEX ON %I.%I (visible_at)', {schema_text}, 'w_' || slug);
    EXECUTE format('CREATE INDEX ON %I.%I (expires) WHERE expires IS NOT NULL', {schema_text}, 'q_' || slug);
    EXECUTE format('CREATE INDEX ON %I.%I (expires) WHERE expires IS NOT NULL', {schema_text}, 'w_' || slug);
    EXECUTE format('CREATE TABLE %1$I.%2$I (%3$s, finished_at timestamptz NOT NULL, tries integer NOT NULL DEFAULT 0,'
        ' waits text, claimed_at timestamptz, tried_at timestamptz, PRIMARY KEY (rank, id))',
        {schema_text}, 'd_' || slug, common);
    EXECUTE format(
        'CREATE TABLE %1$I.%2$I (id uuid NOT NULL, enqueued_at timestamptz NOT NULL, finished_at timestamptz NOT NULL,'
        ' token bigint, attempts integer NOT NULL, max_attempts integer, rank smallint NOT NULL,'
        ' replayed boolean NOT NULL DEFAULT false, used bigint[], status text NOT NULL, content_type text,'
        ' headers json, error text, worker text, result bytea, payload bytea NOT NULL, claimed_at timestamptz, expires timestamptz,'
        ' history jsonb) PARTITION BY RANGE (finished_at)', {schema_text}, 'a_' || slug);
    EXECUTE format('CREATE INDEX ON %I.%I (id)', {schema_text}, 'a_' || slug);
    EXECUTE format('CREATE TABLE %1$I.%2$I PARTITION OF %1$I.%3$I DEFAULT',
        {schema_text}, 'p_' || slug || '_default', 'a_' || slug);
    PERFORM {schema}.make_day(slug, ({schema}.now() AT TIME ZONE 'UTC')::date + n) FROM generate_series(0, 2) n;
END $$;
