"""Tests of the PostgreSQL store, on a real server."""
