"""The bars for buckets: requests and bytes per message, throughput with added latency, and what an idle worker asks."""
