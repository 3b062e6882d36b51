-- Staged messages that nobody published, and sinks long unheard of.  $1 queue  $2 stages below this  $3 days
WITH swept AS (DELETE FROM {schema}.staged WHERE stage < $2::uuid RETURNING 1),
old AS (
    DELETE FROM {schema}.sinks s USING {schema}.queues
    WHERE queues.name = $1 AND s.queue = queues.id AND s.at < {schema}.now() - $3::float8 * interval '1 day'
)
SELECT count(*) FROM swept
