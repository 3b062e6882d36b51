-- What a role needs to run producers and workers, and no more. Run as the owner of the schema.
GRANT USAGE ON SCHEMA {schema} TO {role};
GRANT SELECT ON {schema}.migrations, {schema}.holdfast_mark TO {role};
GRANT SELECT, UPDATE ON {schema}.queues TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON
    {schema}.calls, {schema}.settled, {schema}.keys, {schema}.deltas, {schema}.consumers, {schema}.batches,
    {schema}.sinks, {schema}.staged
TO {role};
GRANT EXECUTE ON FUNCTION
    {schema}.create_queue(text, text, json, integer, boolean, boolean, text), {schema}.drop_queue(text),
    {schema}.make_tables(text), {schema}.make_day(text, date), {schema}.drop_days(text, timestamptz),
    {schema}.checked_slug(text), {schema}.now()
TO {role};
-- The tables of queues, those there are and those to come. In a schema that is shared with others, what its owner makes
-- there later is the role's as well: give Holdfast a schema of its own where that matters.
DO $grants$
DECLARE
    own record;
BEGIN
    IF EXISTS (  -- a schema of the format before has none
        SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = {schema_text} AND c.relname = 'holdfast_schedules'
    ) THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON {schema}.holdfast_schedules TO {role};
    END IF;
    IF EXISTS (  -- the same
        SELECT FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
        WHERE n.nspname = {schema_text} AND p.proname = 'send'
    ) THEN
        GRANT EXECUTE ON FUNCTION
            {schema}.send(text, jsonb, integer, double precision, timestamptz, jsonb, text, integer) TO {role};
    END IF;
    IF EXISTS (  -- the same
        SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = {schema_text} AND c.relname = 'holdfast_values'
    ) THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON {schema}.holdfast_values TO {role};
    END IF;
    IF EXISTS (  -- the same
        SELECT FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
        WHERE n.nspname = {schema_text} AND p.proname = 'with_attempt'
    ) THEN
        GRANT EXECUTE ON FUNCTION
            {schema}.remembered(text), {schema}.with_attempt(jsonb, timestamptz, timestamptz, text, text) TO {role};
    END IF;
    FOR own IN
        SELECT c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace,
            {schema}.queues q
        WHERE n.nspname = {schema_text} AND c.relkind IN ('r', 'p')
            AND (c.relname IN ('q_' || q.slug, 'w_' || q.slug, 'd_' || q.slug, 'a_' || q.slug)
                OR c.relname ~ ('^p_' || q.slug || '_([0-9]{8}|default)$'))
    LOOP
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %I.%I TO %s', {schema_text}, own.relname, {role_text});
    END LOOP;
END $grants$;
ALTER DEFAULT PRIVILEGES IN SCHEMA {schema} GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO {role};
