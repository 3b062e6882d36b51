-- Counts of the dead letters seen as a queue, up to so many.  $1 queue  $2 rows to look at
WITH t AS MATERIALIZED (SELECT {schema}.now() AS now),
total AS MATERIALIZED (
    SELECT coalesce(sum(archived), 0)::bigint AS archived, coalesce(sum(completed), 0)::bigint AS completed,
        coalesce(sum(failed), 0)::bigint AS failed
    FROM {schema}.deltas WHERE queue = (SELECT id FROM {schema}.queues WHERE name = $1)
),
n AS (
    SELECT count(*) AS rows,
        count(*) FILTER (WHERE d.visible_at <= t.now) AS pending,
        count(*) FILTER (WHERE d.visible_at > t.now AND d.token IS NOT NULL) AS processing,
        count(*) FILTER (WHERE d.visible_at > t.now AND d.token IS NULL AND d.waits = 'delayed') AS delayed,
        min(d.visible_at) FILTER (WHERE d.visible_at <= t.now) AS oldest
    FROM (SELECT visible_at, token, waits FROM {d} ORDER BY rank, id LIMIT $2::bigint) d, t
)
SELECT n.pending, n.delayed, n.processing, n.rows - n.pending - n.delayed - n.processing AS retry, 0::bigint AS dead,
    total.archived, total.completed, total.failed, date_part('epoch', t.now - n.oldest) AS oldest_age,
    n.rows < $2::bigint AS exact
FROM n, total, t
