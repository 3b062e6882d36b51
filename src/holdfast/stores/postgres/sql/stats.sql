-- Counts of a queue from the deltas; what is held or due from the first rows only.  $1 queue  $2 rows to look at
WITH t AS MATERIALIZED (SELECT {schema}.now() AS now),
total AS MATERIALIZED (
    SELECT coalesce(sum(live), 0)::bigint AS live, coalesce(sum(delayed), 0)::bigint AS delayed,
        coalesce(sum(retry), 0)::bigint AS retry, coalesce(sum(dead), 0)::bigint AS dead,
        coalesce(sum(archived), 0)::bigint AS archived, coalesce(sum(completed), 0)::bigint AS completed,
        coalesce(sum(failed), 0)::bigint AS failed
    FROM {schema}.deltas WHERE queue = (SELECT id FROM {schema}.queues WHERE name = $1)
),
first AS (SELECT visible_at, enqueued_at FROM {q} ORDER BY rank, id LIMIT $2::bigint),
seen AS (
    SELECT count(*) AS rows, count(*) FILTER (WHERE visible_at > t.now) AS held,
        min(greatest(visible_at, enqueued_at)) FILTER (WHERE visible_at <= t.now) AS oldest
    FROM first, t
),
due AS (
    SELECT count(*) AS rows, count(*) FILTER (WHERE waits = 'delayed') AS delayed,
        count(*) FILTER (WHERE waits = 'retry') AS retry, min(greatest(visible_at, enqueued_at)) AS oldest
    FROM (
        SELECT waits, visible_at, enqueued_at FROM {w} WHERE visible_at <= (SELECT now FROM t)
        ORDER BY visible_at LIMIT $2::bigint
    ) w
)
SELECT total.live - seen.held + due.rows AS pending, total.delayed - due.delayed AS delayed, seen.held AS processing,
    total.retry - due.retry AS retry, total.dead, total.archived, total.completed, total.failed,
    date_part('epoch', t.now - least(seen.oldest, due.oldest)) AS oldest_age,
    seen.rows < $2::bigint AND due.rows < $2::bigint AS exact
FROM total, seen, due, t
