-- When something will become visible, as far as the first few thousand rows tell; seconds from now.
WITH t AS MATERIALIZED (SELECT {schema}.now() AS now)
SELECT date_part('epoch', least(
    (SELECT min(visible_at) FROM {w}),
    (SELECT min(visible_at) FROM (SELECT visible_at FROM {q} ORDER BY rank, id LIMIT 2000) first
        WHERE visible_at > (SELECT now FROM t))
) - t.now) AS seconds
FROM t
