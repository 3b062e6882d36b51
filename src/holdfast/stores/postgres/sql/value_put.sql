-- Keep a value, where $5 says so only if nothing is there; what has expired is not there, and our own write, done again,
-- is as if it were not. Nothing comes back if it was not kept.  $1 key  $2 data  $3 version  $4 seconds, or for ever
INSERT INTO {schema}.holdfast_values AS kept (key, data, version, expires_at)
VALUES ($1::text, $2::bytea, $3::text, {schema}.now() + make_interval(secs => $4::float8))
ON CONFLICT (key) DO UPDATE
SET data = excluded.data, version = excluded.version, expires_at = excluded.expires_at
WHERE NOT $5::boolean OR kept.version = $3::text OR kept.expires_at <= {schema}.now()
RETURNING kept.version
