-- Leases end now, as if their time had come; their holders' token is replaced by one that nobody has. Those of pipelines
-- have no end. A repeat, after a lost answer, tells the same.  $1 queue  $2 ids  $3 ranks  $4 token
WITH t AS MATERIALIZED (SELECT {schema}.now() AS now)
UPDATE {q} q SET token = $4::bigint, visible_at = t.now
FROM unnest($2::uuid[], $3::smallint[]) AS i (id, rank), t, {schema}.queues
WHERE queues.name = $1 AND q.rank = i.rank AND q.id = i.id 
    AND (q.token = $4::bigint OR (q.token IS NOT NULL AND q.visible_at > t.now AND q.visible_at < '9999-01-01'))
RETURNING q.id
