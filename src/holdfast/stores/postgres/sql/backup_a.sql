-- Settled messages, as a backup has them.
SELECT id::text, status, payload, content_type, headers::text, 255 - rank, attempts, max_attempts,
    (extract(epoch FROM enqueued_at) * 1000000)::bigint, NULL::bigint AS due, false AS held, false AS crashed,
    (extract(epoch FROM claimed_at) * 1000000)::bigint, (extract(epoch FROM finished_at) * 1000000)::bigint, result,
    error, worker,
    (extract(epoch FROM expires) * 1000000)::bigint AS expires{history_or_null}
FROM {a} ORDER BY id
