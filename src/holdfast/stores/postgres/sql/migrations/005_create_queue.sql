-- Several at once may create a queue: of two unique keys, name and slug, either can be the one on which they meet.

CREATE OR REPLACE FUNCTION {schema}.create_queue(
    new_name text, new_slug text, new_options json, new_max_attempts integer, new_no_retry boolean,
    new_archive boolean, new_dead_letter text
) RETURNS integer LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    made integer;
BEGIN
    INSERT INTO {schema}.queues (name, slug, options, max_attempts, no_retry, archive, dead_letter, created_at)
    VALUES (new_name, {schema}.checked_slug(new_slug), new_options, new_max_attempts, new_no_retry, new_archive,
        new_dead_letter, {schema}.now())
    ON CONFLICT DO NOTHING
    RETURNING id INTO made;
    IF made IS NOT NULL THEN
        PERFORM {schema}.make_tables(new_slug);
    ELSIF NOT EXISTS (SELECT FROM {schema}.queues WHERE name = new_name) THEN
        RAISE EXCEPTION 'another queue has the tables of %', new_name USING ERRCODE = 'unique_violation';
    END IF;
    RETURN made;
END $$;
