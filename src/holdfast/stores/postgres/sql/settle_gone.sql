-- Completed and not kept; how many, and which if not all.  $1 queue  $2 ids  $3 ranks  $4 tokens
WITH queue AS MATERIALIZED (SELECT id, {schema}.now() AS now FROM {schema}.queues WHERE name = $1),
gone AS (
    DELETE FROM {q} q USING unnest($2::uuid[], $3::smallint[], $4::bigint[]) AS i (id, rank, token)
    WHERE q.rank = i.rank AND q.id = i.id AND q.token = i.token
    RETURNING q.id, q.token
),
forgotten AS (
    INSERT INTO {schema}.settled (queue, entry, ids, at)
    SELECT queue.id, g.entry, g.ids, queue.now
    FROM queue, (SELECT token * 4 AS entry, array_agg(id) AS ids FROM gone GROUP BY token) g
),
done AS MATERIALIZED (SELECT count(*) AS n FROM gone),
counted AS (
    INSERT INTO {schema}.deltas (queue, live, completed) SELECT queue.id, -n, n FROM queue, done WHERE n > 0
)
SELECT n, CASE WHEN n < cardinality($2::uuid[]) THEN ARRAY(SELECT id FROM gone) END AS ids,
    CASE WHEN n < cardinality($2::uuid[]) THEN ARRAY(SELECT token FROM gone) END AS tokens
FROM done
