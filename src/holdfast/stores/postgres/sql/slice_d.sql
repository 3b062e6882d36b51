-- Some dead letters as columns, from a place on.
-- $1 from rank  $2 from id  $3 up to rank  $4 up to id  $5 limit  $6 the queue's max_attempts
SELECT count(*), array_agg(id::text ORDER BY rank, id), array_agg(payload ORDER BY rank, id),
    array_agg(content_type ORDER BY rank, id), array_agg(headers::text ORDER BY rank, id),
    array_agg(255 - rank ORDER BY rank, id), array_agg(attempts ORDER BY rank, id),
    array_agg(coalesce(max_attempts, $6::integer) ORDER BY rank, id),
    array_agg((extract(epoch FROM enqueued_at) * 1000000)::bigint ORDER BY rank, id),
    array_agg('dead'::text), array_agg((extract(epoch FROM claimed_at) * 1000000)::bigint ORDER BY rank, id),
    array_agg((extract(epoch FROM finished_at) * 1000000)::bigint ORDER BY rank, id),
    array_agg(worker ORDER BY rank, id), array_agg(NULL::bytea), array_agg(error ORDER BY rank, id),
    array_agg((extract(epoch FROM expires) * 1000000)::bigint ORDER BY rank, id), array_agg({history_text} ORDER BY rank, id)
FROM (
    SELECT * FROM {d} d
    WHERE (d.rank, d.id) >= ($1::smallint, $2::uuid) AND (d.rank, d.id) <= ($3::smallint, $4::uuid)
    ORDER BY d.rank, d.id LIMIT $5::integer
) found
