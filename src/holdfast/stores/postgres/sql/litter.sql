-- Rows of a queue that a claim walks over for nothing: dead ones, as the server has counted them, and claim batches.
SELECT pg_stat_get_dead_tuples(to_regclass({q_text})) + (
    SELECT coalesce(sum(b.rows), 0)::bigint FROM {schema}.batches b, {schema}.queues
    WHERE b.queue = queues.id AND queues.slug = {slug_text}
)
