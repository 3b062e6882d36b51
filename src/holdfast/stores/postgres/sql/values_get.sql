-- Values by key, those that have not expired.  $1 keys
SELECT v.key, v.data, v.version FROM {schema}.holdfast_values v
WHERE v.key = ANY($1::text[]) AND (v.expires_at IS NULL OR v.expires_at > {schema}.now())
