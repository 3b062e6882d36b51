"""The space of `file://`: a folder with one SQLite database, large objects as plain files beside it."""

from .space import FolderSpace

__all__ = ["FolderSpace"]
