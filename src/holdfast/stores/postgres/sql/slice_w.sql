-- Some rows of the table of waiting messages as columns, from an id on.
-- $1 from id  $2 up to id  $3 limit  $4 'due', 'delayed' or 'retry'  $5 instant  $6 the queue's max_attempts
SELECT count(*), array_agg(id::text ORDER BY id), array_agg(payload ORDER BY id), array_agg(content_type ORDER BY id),
    array_agg(headers::text ORDER BY id), array_agg(255 - rank ORDER BY id), array_agg(attempts ORDER BY id),
    array_agg(coalesce(max_attempts, $6::integer) ORDER BY id),
    array_agg((extract(epoch FROM enqueued_at) * 1000000)::bigint ORDER BY id),
    array_agg(CASE WHEN $4::text <> 'due' THEN (extract(epoch FROM visible_at) * 1000000)::bigint END ORDER BY id),
    array_agg(error ORDER BY id)
FROM (
    SELECT * FROM {w} w
    WHERE w.id >= $1::uuid AND w.id <= $2::uuid
        AND CASE $4::text
            WHEN 'due' THEN w.visible_at <= to_timestamp($5::float8)
            ELSE w.waits = $4::text AND w.visible_at > to_timestamp($5::float8)
        END
    ORDER BY w.id LIMIT $3::integer
) found
