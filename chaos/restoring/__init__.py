"""Stores that are copied, put back and touched: what must be in the copy, and what must not come back."""
