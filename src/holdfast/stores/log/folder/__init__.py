"""The space of `file://`: a folder with one SQLite database, large objects as plain files beside it."""

from pathlib import Path

from .identity import DATABASE, LOCK
from .space import FolderSpace

__all__ = ["FolderSpace", "database_of", "has_remains"]


def database_of(folder: Path) -> Path:
    """Where the database of a folder is, or would be."""
    return folder / DATABASE


def has_remains(folder: Path) -> bool:
    """Whether it was a store, whatever is left of it: opening it says what is missing."""
    return (folder / LOCK).exists() or any(folder.glob("*@*"))
