-- Which of these queues are there, and whether they carry a mark.  $1 queues  $2 mark
SELECT q.name, EXISTS (SELECT FROM {schema}.sinks s WHERE s.queue = q.id AND s.name = $2) AS ours
FROM {schema}.queues q WHERE q.name = ANY ($1::text[])
