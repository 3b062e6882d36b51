-- Forget what has expired; how many.
WITH swept AS (
    DELETE FROM {schema}.holdfast_values WHERE expires_at <= {schema}.now() RETURNING 1
)
SELECT count(*) FROM swept
