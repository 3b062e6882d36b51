-- Keep a value in place of one of this version; nothing comes back if it is of another. Our own write, done again, is
-- as expected.  $1 key  $2 data  $3 version  $4 seconds, or for ever  $5 expected
UPDATE {schema}.holdfast_values
SET data = $2::bytea, version = $3::text, expires_at = {schema}.now() + make_interval(secs => $4::float8)
WHERE key = $1::text
    AND (version = $3::text OR version = $5::text AND (expires_at IS NULL OR expires_at > {schema}.now()))
RETURNING version
