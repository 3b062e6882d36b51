-- A queue and its counts.  $1 queue
SELECT q.id, q.name, q.options, q.paused, date_part('epoch', q.created_at) AS created_at, d.*
FROM {schema}.queues q, LATERAL (
    SELECT coalesce(sum(live), 0)::bigint AS live, coalesce(sum(delayed + retry), 0)::bigint AS waiting,
        coalesce(sum(dead), 0)::bigint AS dead, coalesce(sum(archived), 0)::bigint AS archived,
        coalesce(sum(completed), 0)::bigint AS completed, coalesce(sum(failed), 0)::bigint AS failed
    FROM {schema}.deltas WHERE queue = q.id
) d
WHERE q.name = $1
