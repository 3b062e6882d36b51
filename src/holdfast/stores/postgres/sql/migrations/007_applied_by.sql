-- Who raises the schema is noted from here on; of what was applied before, nobody knows.
ALTER TABLE {schema}.migrations ADD COLUMN applied_by text;
ALTER TABLE {schema}.migrations ALTER COLUMN applied_by SET DEFAULT session_user;
