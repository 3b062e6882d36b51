"""The bars of PostgreSQL: ours beside raw COPY, pgmq, procrastinate and pgqueuer, taking turns on one server.

python -m holdfast.bench.postgres --pgmq pgmq.sql --peers-python /path/to/python

`pgmq.sql` is `pgmq-extension/sql/pgmq.sql` of a release of pgmq; the other Python is one with procrastinate and
pgqueuer (requirements/peers-postgres.in). Without them their lines are left out.
Pick-up alone, for a quiet moment: `--repeats 0 --settled 0`. Staying fast alone: `--repeats 0 --pickups 0`.
"""
