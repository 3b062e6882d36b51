-- As take_back.sql, what a worker holds, whose name stands as it is or in ASCII.  $1 queue  $2 names  $3 token
WITH t AS MATERIALIZED (SELECT {schema}.now() AS now)
UPDATE {q} q SET token = $3::bigint, visible_at = t.now
FROM t, {schema}.queues
WHERE queues.name = $1 AND q.worker = ANY ($2::text[])
    AND (q.token = $3::bigint OR (q.token IS NOT NULL AND q.visible_at > t.now AND q.visible_at < '9999-01-01'))
RETURNING q.id
