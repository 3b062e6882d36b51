"""Buckets: `s3://`, `gs://` and `az://` through obstore."""

from __future__ import annotations

from .address import take_apart

__all__ = ["take_apart"]
