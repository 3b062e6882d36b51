-- The schema, if nothing is in it; `public` stays: no database is made without it.
DO $$
BEGIN
    IF {schema_text} <> 'public' THEN
        DROP SCHEMA {schema};
    END IF;
EXCEPTION WHEN dependent_objects_still_exist OR insufficient_privilege THEN
    NULL;  -- something is left in it, or it is another role's
END $$;
