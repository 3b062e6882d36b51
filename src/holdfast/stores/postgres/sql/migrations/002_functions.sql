-- Everything that needs DDL runs as the owner of the schema, so that workers need no right to make tables.

-- Refuses what cannot be the name of a table of ours, whoever asks.
CREATE FUNCTION {schema}.checked_slug(slug text) RETURNS text LANGUAGE plpgsql IMMUTABLE
    SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF slug !~ '^[a-z0-9_]{1,50}$' THEN
        RAISE EXCEPTION 'not a queue''s table name: %', left(slug, 80) USING ERRCODE = 'invalid_name';
    END IF;
    RETURN slug;
END $$;

-- One day of an archive. False: it cannot be now (the default partition takes the rows).
CREATE FUNCTION {schema}.make_day(wanted_slug text, day date) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp SET lock_timeout = '2s' AS $$
DECLARE
    slug text := {schema}.checked_slug(wanted_slug);
    part text := format('p_%s_%s', slug, to_char(day, 'YYYYMMDD'));
BEGIN
    IF to_regclass(format('%I.%I', {schema_text}, part)) IS NOT NULL THEN
        RETURN false;
    END IF;
    EXECUTE format(
        'CREATE TABLE %1$I.%2$I PARTITION OF %1$I.%3$I FOR VALUES FROM (%4$L) TO (%5$L)',
        {schema_text}, part, 'a_' || slug, day::text || ' 00:00+00', (day + 1)::text || ' 00:00+00');
    RETURN true;
EXCEPTION WHEN check_violation OR lock_not_available OR duplicate_table OR undefined_table THEN
    RETURN false;
END $$;

-- The days of an archive that ended before an instant go as a whole; their names.
CREATE FUNCTION {schema}.drop_days(wanted_slug text, before timestamptz) RETURNS SETOF date LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '2s' AS $$
DECLARE
    slug text := {schema}.checked_slug(wanted_slug);
    part record;
BEGIN
    FOR part IN
        SELECT c.relname, to_date(right(c.relname, 8), 'YYYYMMDD') AS day
        FROM pg_inherits i
        JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = to_regclass(format('%I.%I', {schema_text}, 'a_' || slug))
            AND c.relname ~ '_[0-9]{8}$'
            AND to_date(right(c.relname, 8), 'YYYYMMDD') + 1 <= (before AT TIME ZONE 'UTC')::date
    LOOP
        EXECUTE format('DROP TABLE %I.%I', {schema_text}, part.relname);
        RETURN NEXT part.day;
    END LOOP;
EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
    RETURN;
END $$;

CREATE FUNCTION {schema}.make_tables(wanted_slug text) RETURNS void LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    slug text := {schema}.checked_slug(wanted_slug);
    common text :=
        'id uuid NOT NULL, enqueued_at timestamptz NOT NULL, visible_at timestamptz NOT NULL, token bigint,'
        ' attempts integer NOT NULL DEFAULT 0, max_attempts integer, rank smallint NOT NULL,'  -- 255 - priority
        ' recovered boolean NOT NULL DEFAULT false, used bigint[], content_type text, headers json,'
        ' error text, worker text, payload bytea NOT NULL';
    vacuum text := 'autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,'
        ' autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.5';
BEGIN
    -- Ready and held. Half of each page is free and no index covers what a claim changes: a claim is a HOT update.
    EXECUTE format('CREATE TABLE %1$I.%2$I (%3$s, PRIMARY KEY (rank, id)) WITH (fillfactor = 50, %4$s)',
        {schema_text}, 'q_' || slug, common, vacuum);
    -- Waiting for their time: delayed messages and retries. Claims bring over what is due.
    EXECUTE format('CREATE TABLE %1$I.%2$I (%3$s, waits text NOT NULL, PRIMARY KEY (id)) WITH (%4$s)',
        {schema_text}, 'w_' || slug, common, vacuum);
    EXECUTE format('CREATE INDEX ON %I.%I (visible_at)', {schema_text}, 'w_' || slug);
    EXECUTE format('CREATE TABLE %1$I.%2$I (%3$s, finished_at timestamptz NOT NULL, tries integer NOT NULL DEFAULT 0,'
        ' waits text, PRIMARY KEY (rank, id))', {schema_text}, 'd_' || slug, common);
    EXECUTE format(
        'CREATE TABLE %1$I.%2$I (id uuid NOT NULL, enqueued_at timestamptz NOT NULL, finished_at timestamptz NOT NULL,'
        ' token bigint, attempts integer NOT NULL, max_attempts integer, rank smallint NOT NULL,'
        ' replayed boolean NOT NULL DEFAULT false, used bigint[], status text NOT NULL, content_type text,'
        ' headers json, error text, worker text, result bytea, payload bytea NOT NULL)'
        ' PARTITION BY RANGE (finished_at)', {schema_text}, 'a_' || slug);
    EXECUTE format('CREATE INDEX ON %I.%I (id)', {schema_text}, 'a_' || slug);
    EXECUTE format('CREATE TABLE %1$I.%2$I PARTITION OF %1$I.%3$I DEFAULT',
        {schema_text}, 'p_' || slug || '_default', 'a_' || slug);
    PERFORM {schema}.make_day(slug, ({schema}.now() AT TIME ZONE 'UTC')::date + n) FROM generate_series(0, 2) n;
END $$;

-- The new queue's id; nothing when there is one of this name.
CREATE FUNCTION {schema}.create_queue(
    new_name text, new_slug text, new_options json, new_max_attempts integer, new_no_retry boolean,
    new_archive boolean, new_dead_letter text
) RETURNS integer LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    made integer;
BEGIN
    INSERT INTO {schema}.queues (name, slug, options, max_attempts, no_retry, archive, dead_letter, created_at)
    VALUES (new_name, {schema}.checked_slug(new_slug), new_options, new_max_attempts, new_no_retry, new_archive,
        new_dead_letter, {schema}.now())
    ON CONFLICT (name) DO NOTHING
    RETURNING id INTO made;
    IF made IS NOT NULL THEN
        PERFORM {schema}.make_tables(new_slug);
    END IF;
    RETURN made;
END $$;

-- False: there was none.
CREATE FUNCTION {schema}.drop_queue(old_name text) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER
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
    FOREACH kind IN ARRAY ARRAY['q_', 'w_', 'd_', 'a_'] LOOP
        EXECUTE format('DROP TABLE %I.%I', {schema_text}, kind || old.slug);
    END LOOP;
    RETURN true;
END $$;

REVOKE ALL ON FUNCTION
    {schema}.create_queue(text, text, json, integer, boolean, boolean, text), {schema}.drop_queue(text),
    {schema}.make_tables(text), {schema}.make_day(text, date), {schema}.drop_days(text, timestamptz),
    {schema}.checked_slug(text), {schema}.now()
FROM PUBLIC;
