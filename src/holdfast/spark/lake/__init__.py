"""The lake: finished messages as Parquet tables, committed by a manifest of their own."""

from __future__ import annotations

from .manifest import File, Lake, LakeConflict, Snapshot

__all__ = ["File", "Lake", "LakeConflict", "Snapshot"]
