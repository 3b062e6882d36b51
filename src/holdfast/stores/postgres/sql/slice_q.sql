-- Some rows of the table of ready and held messages as columns, from a place on.
-- $1 from rank  $2 from id  $3 up to rank  $4 up to id  $5 limit  $6 'held', 'ready' or 'token'  $7 token  $8 instant
-- $9 the queue's max_attempts
SELECT count(*), array_agg(id::text ORDER BY rank, id), array_agg(payload ORDER BY rank, id),
    array_agg(content_type ORDER BY rank, id), array_agg(headers::text ORDER BY rank, id),
    array_agg(255 - rank ORDER BY rank, id), array_agg(attempts ORDER BY rank, id),
    array_agg(coalesce(max_attempts, $9::integer) ORDER BY rank, id),
    array_agg((extract(epoch FROM enqueued_at) * 1000000)::bigint ORDER BY rank, id),
    array_agg(CASE WHEN $6::text = 'held' AND visible_at < '9999-01-01 00:00+00'
        THEN (extract(epoch FROM visible_at) * 1000000)::bigint END ORDER BY rank, id) AS visible_at,
    array_agg(error ORDER BY rank, id), array_agg(worker ORDER BY rank, id)
FROM (
    SELECT * FROM {q} q
    WHERE (q.rank, q.id) >= ($1::smallint, $2::uuid) AND (q.rank, q.id) <= ($3::smallint, $4::uuid)
        AND CASE $6::text
            WHEN 'held' THEN q.visible_at > to_timestamp($8::float8)
            WHEN 'ready' THEN q.visible_at <= to_timestamp($8::float8)
            ELSE q.token = $7::bigint
        END
    ORDER BY q.rank, q.id LIMIT $5::integer
) found
