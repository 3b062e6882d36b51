-- Our own tables and functions, and nothing that depends on them: what does is somebody else's, and stops it.
DO $$
DECLARE
    own text;
    kind text;
BEGIN
    FOR own IN SELECT q.slug FROM {schema}.queues q LOOP
        FOREACH kind IN ARRAY ARRAY['q_', 'w_', 'd_', 'a_'] LOOP
            EXECUTE format('DROP TABLE IF EXISTS %I.%I', {schema_text}, kind || own);
        END LOOP;
    END LOOP;
END $$;
DROP TABLE IF EXISTS
    {schema}.migrations, {schema}.queues, {schema}.calls, {schema}.settled, {schema}.keys, {schema}.deltas,
    {schema}.consumers, {schema}.batches, {schema}.sinks, {schema}.staged, {schema}.holdfast_schedules,
    {schema}.holdfast_values, {schema}.holdfast_mark;
DROP FUNCTION IF EXISTS
    {schema}.create_queue(text, text, json, integer, boolean, boolean, text), {schema}.drop_queue(text),
    {schema}.make_tables(text), {schema}.make_day(text, date), {schema}.drop_days(text, timestamptz),
    {schema}.checked_slug(text), {schema}.now(), {schema}.new_id(integer, timestamptz),
    {schema}.with_attempt(jsonb, timestamptz, timestamptz, text, text), {schema}.remembered(text),
    {schema}.send(text, jsonb, integer, double precision, timestamptz, jsonb, text, integer);
