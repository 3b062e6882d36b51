-- Dead rows of a queue, as the server has counted them so far.
SELECT pg_stat_get_dead_tuples(to_regclass({q_text}))
