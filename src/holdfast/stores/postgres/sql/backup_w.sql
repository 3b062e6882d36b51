-- Messages that wait for their time, as a backup has them.  $1 instant
SELECT id::text, CASE WHEN visible_at <= to_timestamp($1::float8) THEN 'pending' ELSE waits END AS status, payload,
    content_type, headers::text, 255 - rank, attempts, max_attempts, (extract(epoch FROM enqueued_at) * 1000000)::bigint,
    CASE WHEN visible_at > to_timestamp($1::float8) THEN (extract(epoch FROM visible_at) * 1000000)::bigint END AS due,
    false AS held, recovered AS crashed, NULL::bigint AS claimed_at, NULL::bigint AS finished_at, NULL::bytea AS result,
    error, worker,
    (extract(epoch FROM expires) * 1000000)::bigint AS expires{history_or_null}
FROM {w} ORDER BY id
