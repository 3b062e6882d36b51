-- Where messages lie whose priority was changed: the bits of an id tell the one it was enqueued with.  $1 ids
WITH RECURSIVE i AS MATERIALIZED (SELECT unnest($1::uuid[]) AS id),
ready AS (
    (SELECT rank FROM {q} ORDER BY rank LIMIT 1)
    UNION ALL
    SELECT (SELECT m.rank FROM {q} m WHERE m.rank > ready.rank ORDER BY m.rank LIMIT 1)
    FROM ready WHERE ready.rank IS NOT NULL
),
dead AS (
    (SELECT rank FROM {d} ORDER BY rank LIMIT 1)
    UNION ALL
    SELECT (SELECT m.rank FROM {d} m WHERE m.rank > dead.rank ORDER BY m.rank LIMIT 1)
    FROM dead WHERE dead.rank IS NOT NULL
)
SELECT m.id, m.rank FROM ready JOIN i ON true JOIN {q} m ON m.rank = ready.rank AND m.id = i.id
UNION ALL
SELECT m.id, m.rank FROM dead JOIN i ON true JOIN {d} m ON m.rank = dead.rank AND m.id = i.id
