-- About how large the tables of a queue are, and the time.
SELECT date_part('epoch', {schema}.now()) AS now, pg_relation_size({q_text}) AS q, pg_relation_size({w_text}) AS w,
    pg_relation_size({d_text}) AS d,
    (SELECT coalesce(sum(pg_relation_size(i.inhrelid)), 0)::bigint FROM pg_inherits i
        WHERE i.inhparent = to_regclass({a_text})) AS a
