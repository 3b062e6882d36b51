"""The space of `file://`: a folder with one SQLite database, large objects as plain files beside it."""

from pathlib import Path

from .identity import DATABASE
from .space import FolderSpace

__all__ = ["FolderSpace", "database_of"]


def database_of(folder: Path) -> Path:
    """Where the database of a folder is, or would be."""
    return folder / DATABASE
