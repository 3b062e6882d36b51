"""Where a lake lies: a folder that the driver and every executor reach under the same path."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ...errors import ConfigError

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


class Folder:
    """Files under one root, by name. Nothing is ever written over."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(_path(os.fspath(root))).absolute()

    def path(self, name: str) -> Path:
        return self.root / name

    def names(self, folder: str) -> list[str]:
        """The names directly in a folder, in order."""
        try:
            return sorted(entry.name for entry in os.scandir(self.root / folder) if not entry.name.startswith("."))
        except FileNotFoundError:
            return []

    def walk(self, folder: str) -> Iterator[tuple[str, float]]:
        """Every file under a folder, with the time it was written."""
        for path in (self.root / folder).rglob("*"):
            try:
                if path.is_file():
                    yield str(path.relative_to(self.root)), path.stat().st_mtime
            except FileNotFoundError:  # swept by somebody else
                continue

    def read(self, name: str) -> bytes:
        return (self.root / name).read_bytes()

    def create(self, name: str, data: bytes) -> bool:
        """Write it all, durably, or nothing; False: the name is taken."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
        try:
            with draft.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(draft, path)  # the one step that decides: a link to a taken name is refused
            except FileExistsError:
                return False
            sync_folder(path.parent)
            return True
        finally:
            draft.unlink(missing_ok=True)

    def delete(self, name: str) -> None:
        (self.root / name).unlink(missing_ok=True)

    def __repr__(self) -> str:
        return f"Folder({str(self.root)!r})"


def sync_folder(path: Path) -> None:
    """Make names in a folder durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _path(place: str) -> str:
    if not _SCHEME.match(place):
        return place
    parts = urlsplit(place)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        raise ConfigError(
            f"a lake is a folder that driver and executors share (a path or file:///…), not {parts.scheme}://; "
            "mount the bucket, or copy the finished files there"
        )
    return unquote(parts.path)
