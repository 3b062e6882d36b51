"""The bars of PostgreSQL: ours beside raw COPY, pgmq, procrastinate and pgqueuer, taking turns on one server.

python -m benchmarks.postgres --pgmq pgmq.sql

`pgmq.sql` is `pgmq-extension/sql/pgmq.sql` of a release of pgmq; without it, its
line is left out. procrastinate and pgqueuer get an environment of their own, made once; `--no-peers` leaves them out.
Pick-up alone, for a quiet moment: `--repeats 0 --settled 0`. Staying fast alone: `--repeats 0 --pickups 0`.
"""
