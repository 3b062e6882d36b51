-- Queues with messages that are ready, held or waiting, and what tells whether something has happened there.
SELECT q.name, count(*), sum(d.live)::bigint AS live, sum(d.delayed + d.retry)::bigint AS waiting,
    sum(d.completed + d.failed + d.dead)::bigint AS ended
FROM {schema}.deltas d JOIN {schema}.queues q ON q.id = d.queue
GROUP BY q.name HAVING sum(d.live) <> 0 OR sum(d.delayed + d.retry) <> 0
