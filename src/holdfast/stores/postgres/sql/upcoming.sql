-- One page of delayed messages or retries by due time.  $1 queue  $2 waits  $3 $4 after: due, id  $5 limit
WITH t AS MATERIALIZED (SELECT greatest({schema}.now(), to_timestamp($3::float8)) AS after),
found AS (
    SELECT m.* FROM {w} m, t
    WHERE m.waits = $2 AND m.visible_at >= t.after
        AND ($4::uuid IS NULL OR (m.visible_at, m.id) > (to_timestamp($3::float8), $4::uuid))
    ORDER BY m.visible_at, m.id LIMIT $5::bigint
)
SELECT f.id, f.waits AS status, f.payload, f.content_type, f.headers, f.rank, f.attempts,
    coalesce(f.max_attempts, queues.max_attempts) AS most, date_part('epoch', f.enqueued_at) AS enqueued_at,
    date_part('epoch', f.visible_at) AS visible_at, NULL::float8 AS finished_at, NULL::bytea AS result, f.error, f.worker,
    NULL::float8 AS claimed_at, date_part('epoch', f.expires) AS expires{f_history}
FROM found f, {schema}.queues
WHERE queues.name = $1
ORDER BY f.visible_at, f.id
