-- Some settled messages as columns, from an id on.
-- $1 from id  $2 up to id  $3 limit  $4 finished since  $5 and until  $6 the queue's max_attempts
SELECT count(*), array_agg(id::text ORDER BY id), array_agg(payload ORDER BY id), array_agg(content_type ORDER BY id),
    array_agg(headers::text ORDER BY id), array_agg(255 - rank ORDER BY id), array_agg(attempts ORDER BY id),
    array_agg(coalesce(max_attempts, $6::integer) ORDER BY id),
    array_agg((extract(epoch FROM enqueued_at) * 1000000)::bigint ORDER BY id), array_agg(status ORDER BY id),
    array_agg((extract(epoch FROM claimed_at) * 1000000)::bigint ORDER BY id),
    array_agg((extract(epoch FROM finished_at) * 1000000)::bigint ORDER BY id), array_agg(worker ORDER BY id),
    array_agg(result ORDER BY id), array_agg(error ORDER BY id),
    array_agg((extract(epoch FROM expires) * 1000000)::bigint ORDER BY id), array_agg({history_text} ORDER BY id)
FROM (
    SELECT * FROM {a} a
    WHERE a.id >= $1::uuid AND a.id <= $2::uuid
        AND a.finished_at >= to_timestamp($4::float8) AND a.finished_at <= to_timestamp($5::float8)
    ORDER BY a.id LIMIT $3::integer
) found
