"""The lake: finished messages as Delta tables, in a folder or a bucket."""

from __future__ import annotations

from .delta import Change, File, LakeConflict, State
from .lake import Lake

__all__ = ["Change", "File", "Lake", "LakeConflict", "State"]
