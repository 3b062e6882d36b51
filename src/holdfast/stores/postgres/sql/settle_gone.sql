-- Completed and not kept.  $1 queue  $2 ids  $3 ranks  $4 tokens
WITH t AS MATERIALIZED (SELECT {schema}.now() AS now),
gone AS (
    DELETE FROM {q} q USING unnest($2::uuid[], $3::smallint[], $4::bigint[]) AS i (id, rank, token)
    WHERE q.rank = i.rank AND q.id = i.id AND q.token = i.token
    RETURNING q.id, q.token
),
forgotten AS (
    INSERT INTO {schema}.settled (queue, entry, ids, at)
    SELECT queues.id, gone.token * 4, array_agg(gone.id), t.now FROM gone, {schema}.queues, t WHERE queues.name = $1
    GROUP BY queues.id, gone.token, t.now
),
counted AS (
    INSERT INTO {schema}.deltas (queue, live, completed)
    SELECT queues.id, -g.n, g.n FROM {schema}.queues, (SELECT count(*) AS n FROM gone) g
    WHERE queues.name = $1 AND g.n > 0
)
SELECT id, token FROM gone
