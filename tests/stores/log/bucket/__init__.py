"""Tests of buckets, on a real S3 server."""
