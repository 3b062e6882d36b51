"""Queues through Spark beside the same rows as Parquet: `python -m benchmarks.spark`."""
