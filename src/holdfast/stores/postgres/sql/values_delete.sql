-- Forget values.  $1 keys
DELETE FROM {schema}.holdfast_values WHERE key = ANY($1::text[])
