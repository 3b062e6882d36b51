-- Dead letters to be replayed, and nobody else's until we are done.  $1 ids  $2 ranks
SELECT d.id, d.headers, d.rank
FROM {d} d JOIN unnest($1::uuid[], $2::smallint[]) AS i (id, rank) ON d.rank = i.rank AND d.id = i.id
WHERE d.token IS NULL OR d.visible_at <= (SELECT {schema}.now())
ORDER BY d.rank, d.id FOR UPDATE OF d
