"""Other queues on PostgreSQL, each run by a Python of its own."""
