-- After which instant a message is not delivered any more: it ends as failed. Most have none, and cost nothing here.
DO $$
DECLARE
    slug text;
    kind text;
BEGIN
    FOR slug IN SELECT queues.slug FROM {schema}.queues LOOP
        FOREACH kind IN ARRAY ARRAY['q_', 'w_', 'd_', 'a_'] LOOP
            EXECUTE format('ALTER TABLE %I.%I ADD COLUMN expires timestamptz', {schema_text}, kind || slug);
        END LOOP;
        FOREACH kind IN ARRAY ARRAY['q_', 'w_'] LOOP
            EXECUTE format('CREATE INDEX ON %I.%I (expires) WHERE expires IS NOT NULL', {schema_text}, kind || slug);
        END LOOP;
    END LOOP;
END $$;

CREATE OR REPLACE FUNCTION {schema}.make_tables(wanted_slug text) RETURNS void LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    slug text := {schema}.checked_slug(wanted_slug);
    common text :=
        'id uuid NOT NULL, enqueued_at timestamptz NOT NULL, visible_at timestamptz NOT NULL, token bigint,'
        ' attempts integer NOT NULL DEFAULT 0, max_attempts integer, rank smallint NOT NULL,'  -- 255 - priority
        ' recovered boolean NOT NULL DEFAULT false, used bigint[], content_type text, headers json,'
        ' error text, worker text, expires timestamptz, payload bytea NOT NULL';
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
        ' headers json, error text, worker text, result bytea, payload bytea NOT NULL, claimed_at timestamptz, expires timestamptz)'
        ' PARTITION BY RANGE (finished_at)', {schema_text}, 'a_' || slug);
    EXECUTE format('CREATE INDEX ON %I.%I (id)', {schema_text}, 'a_' || slug);
    EXECUTE format('CREATE TABLE %1$I.%2$I PARTITION OF %1$I.%3$I DEFAULT',
        {schema_text}, 'p_' || slug || '_default', 'a_' || slug);
    PERFORM {schema}.make_day(slug, ({schema}.now() AT TIME ZONE 'UTC')::date + n) FROM generate_series(0, 2) n;
END $$;

-- Messages from SQL, for programs in any language: SELECT holdfast.send('jobs', '{"n": 1}'). The queue is there already.

-- The same layout as ids.py: milliseconds, version 7, sequence, variant, priority, carried, random, place.
CREATE FUNCTION {schema}.new_id(wanted_priority integer, instant timestamptz) RETURNS uuid LANGUAGE sql VOLATILE
    SET search_path = pg_catalog, pg_temp AS $$
SELECT (
    lpad(to_hex(floor(date_part('epoch', instant) * 1000)::bigint), 12, '0')
    || '7' || lpad(to_hex((floor(date_part('epoch', instant) * 4096000)::bigint % 4096)::integer), 3, '0')
    || lpad(to_hex(
        (1::bigint << 63) | (wanted_priority::bigint << 54)
        | ((('x' || substr(replace(gen_random_uuid()::text, '-', ''), 1, 8))::bit(32)::bigint) << 20)), 16, '0')
)::uuid
$$;

CREATE FUNCTION {schema}.send(
    queue text, value jsonb, priority integer DEFAULT 0, delay double precision DEFAULT 0,
    at timestamptz DEFAULT NULL, headers jsonb DEFAULT NULL, dedup_key text DEFAULT NULL,
    max_attempts integer DEFAULT NULL
) RETURNS uuid LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    target record;
    instant timestamptz := {schema}.now();
    due timestamptz;
    own uuid;
    holder uuid;
    payload bytea;
    most bigint;
BEGIN
    SELECT q.id, q.slug, q.options INTO target FROM {schema}.queues q WHERE q.name = send.queue;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no queue %', left(coalesce(quote_literal(queue), 'NULL'), 130)
            USING ERRCODE = 'undefined_object';
    END IF;
    IF value IS NULL THEN
        RAISE EXCEPTION 'value: jsonb, not NULL; a JSON null is ''null''' USING ERRCODE = 'null_value_not_allowed';
    END IF;
    IF priority IS NULL OR priority < 0 OR priority > 255 THEN
        RAISE EXCEPTION 'a priority is a whole number from 0 to 255' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF delay IS NULL OR NOT (delay >= 0 AND delay < 'infinity'::float8) OR (delay > 0 AND at IS NOT NULL) THEN
        RAISE EXCEPTION 'delay: seconds of at least 0; or at, not both' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF max_attempts < 1 THEN
        RAISE EXCEPTION 'max_attempts: at least 1' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF dedup_key = '' OR octet_length(convert_to(dedup_key, 'UTF8')) > 1024 THEN
        RAISE EXCEPTION 'dedup_key: 1 to 1024 bytes' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF jsonb_typeof(headers) <> 'object' THEN
        RAISE EXCEPTION 'headers: an object of texts' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF headers IS NOT NULL AND (
        SELECT coalesce(sum(octet_length(convert_to(h.name || (h.content #>> '{}'), 'UTF8'))), 0) > 65536
            OR bool_or(jsonb_typeof(h.content) <> 'string')
        FROM jsonb_each(headers) AS h (name, content)
    ) THEN
        RAISE EXCEPTION 'headers: an object of texts, at most 64 KiB' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    payload := convert_to(value::text, 'UTF8');
    most := coalesce((target.options ->> 'max_message_size')::bigint, 67108864);
    IF octet_length(payload) > most THEN
        RAISE EXCEPTION 'the message has % bytes, the limit is %', octet_length(payload), most
            USING ERRCODE = 'program_limit_exceeded';
    END IF;
    own := {schema}.new_id(priority, instant);
    IF dedup_key IS NOT NULL THEN
        INSERT INTO {schema}.keys AS k (queue, key, id, until)
        VALUES (target.id, convert_to(dedup_key, 'UTF8'), own, instant
            + coalesce((target.options ->> 'dedup_window')::float8, 300) * interval '1 second')
        ON CONFLICT ON CONSTRAINT keys_pkey DO UPDATE
            SET id = CASE WHEN k.until <= instant THEN excluded.id ELSE k.id END,
                until = CASE WHEN k.until <= instant THEN excluded.until ELSE k.until END
        RETURNING k.id INTO holder;
        IF holder <> own THEN
            RETURN holder;
        END IF;
    END IF;
    due := greatest(coalesce(at, instant + delay * interval '1 second'), instant);
    EXECUTE format(
        CASE WHEN due <= instant
            THEN 'INSERT INTO %I.%I (id, enqueued_at, visible_at, max_attempts, rank, headers, payload)'
                ' VALUES ($1, $2, $3, $4, $5, $6, $7)'
            ELSE 'INSERT INTO %I.%I (id, enqueued_at, visible_at, max_attempts, rank, headers, payload, waits)'
                ' VALUES ($1, $2, $3, $4, $5, $6, $7, ''delayed'')'
        END, {schema_text}, CASE WHEN due <= instant THEN 'q_' ELSE 'w_' END || {schema}.checked_slug(target.slug)
    ) USING own, instant, due, max_attempts, (255 - priority)::smallint, nullif(headers, '{}'::jsonb)::json, payload;
    INSERT INTO {schema}.deltas (queue, live, delayed)
    VALUES (target.id, (due <= instant)::integer, (due > instant)::integer);
    PERFORM pg_notify(left('holdfast_' || {schema_text}, 63), send.queue);
    RETURN own;
END $$;

REVOKE ALL ON FUNCTION
    {schema}.new_id(integer, timestamptz),
    {schema}.send(text, jsonb, integer, double precision, timestamptz, jsonb, text, integer)
FROM PUBLIC;

-- Small values of integrations: results, bindings. A schema may be shared with others, who may have a table `values`.
CREATE TABLE {schema}.holdfast_values (
    key text COLLATE "C" PRIMARY KEY,
    data bytea NOT NULL,
    version text NOT NULL,
    expires_at timestamptz
);

CREATE INDEX holdfast_values_expires_at ON {schema}.holdfast_values (expires_at) WHERE expires_at IS NOT NULL;
