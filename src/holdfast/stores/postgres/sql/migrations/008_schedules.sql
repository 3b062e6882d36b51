-- Schedules: what was said, and how far each has come. They go with their queue. A schema may be shared with others,
-- who may have a table called `schedules`.
CREATE TABLE {schema}.holdfast_schedules (
    name text PRIMARY KEY,
    queue integer NOT NULL,
    plan json NOT NULL,                     -- as the client reads them, both
    mark json NOT NULL DEFAULT '[]'
);

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
    DELETE FROM {schema}.holdfast_schedules WHERE queue = old.id;
    FOREACH kind IN ARRAY ARRAY['q_', 'w_', 'd_', 'a_'] LOOP
        EXECUTE format('DROP TABLE %I.%I', {schema_text}, kind || old.slug);
    END LOOP;
    RETURN true;
END $$;
