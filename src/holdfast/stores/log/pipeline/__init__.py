"""What only data pipelines need of the engine: columns, scans, staged messages and claim batches."""
