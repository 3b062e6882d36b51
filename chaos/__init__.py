"""Fault runs: processes that are killed, stopped and poisoned, one history each, one checker for all."""
