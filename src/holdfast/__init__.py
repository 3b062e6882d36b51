"""Durable message and job queues on the storage you already have."""
