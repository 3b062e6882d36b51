"""Queues through Spark beside the same rows as Parquet: `python -m holdfast.bench.spark`."""
