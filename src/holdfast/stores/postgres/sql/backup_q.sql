-- Ready and held messages in claim order, as a backup has them. A pipeline's claims are given back.  $1 instant
SELECT id::text, 'pending' AS status, payload, content_type, headers::text, 255 - rank,
    attempts - (visible_at >= '9999-01-01 00:00+00')::integer, max_attempts,
    (extract(epoch FROM enqueued_at) * 1000000)::bigint, NULL::bigint AS due,
    token IS NOT NULL AND visible_at < '9999-01-01 00:00+00' AS held,
    recovered OR (token IS NOT NULL AND visible_at <= to_timestamp($1::float8)) AS crashed,
    NULL::bigint AS claimed_at, NULL::bigint AS finished_at, NULL::bytea AS result, error, worker,
    (extract(epoch FROM expires) * 1000000)::bigint AS expires{history_or_null}
FROM {q} ORDER BY rank, id
