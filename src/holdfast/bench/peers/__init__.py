"""Other queues on SQLite. Each file here is a program for the peers' own environment; it speaks JSON on stdout."""
