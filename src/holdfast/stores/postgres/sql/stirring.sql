-- Those of these queues that hold anything, or are not there: the others have nothing to claim.
SELECT asked.name
FROM unnest($1::text[]) AS asked(name)
LEFT JOIN {schema}.queues q ON q.name = asked.name
LEFT JOIN (
    SELECT queue, sum(live) AS live, sum(delayed + retry) AS waiting FROM {schema}.deltas GROUP BY queue
) d ON d.queue = q.id
WHERE q.id IS NULL OR d.live <> 0 OR d.waiting <> 0
