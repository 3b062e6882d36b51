"""Where backups lie: a folder or a bucket. Files are written once and never changed, but where one is damaged."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from .. import config
from ..errors import ConfigError, StoreError, Unavailable
from ..retry import Exponential
from ..stores.opening import Location, locate, store_options

TRIES = 5  # of a write that nobody answers
_AGAIN = Exponential(base=0.2, jitter=False)  # seconds
_TEMPORARY = ".tmp"
_BUCKETS = ("s3", "gs", "az")


class Target(Protocol):
    """Methods block; they are called in threads."""

    place: str  # as people are told of it
    is_local: bool  # reading everything back costs no requests

    def sizes(self) -> dict[str, int]:
        """The bytes of all files, by name."""

    def read(self, name: str) -> bytes | None:
        """None: it is not there."""

    def create(self, name: str, data: bytes) -> bool:
        """Durable when it returns; False: there is a file of this name, and it stays as it is."""

    def replace(self, name: str, data: bytes) -> None:
        """The same over a file that is damaged."""


def opened(target: str | os.PathLike[str]) -> Target:
    """A path, file:// or the URL of a bucket; ConfigError."""
    location = locate(target)
    if location.scheme == "file":
        return Folder(folder_of(location))
    if location.scheme in _BUCKETS:
        return Bucket(location)
    raise ConfigError(f"{location.scheme}:// cannot hold a backup; give a folder, or a bucket as s3://bucket/prefix")


def is_inside(one: Location, other: Location) -> bool:
    """Whether one place is another, or lies below it, as far as their names tell."""
    place, around = _parts(one), _parts(other)
    return bool(around) and place[: len(around)] == around


def _parts(location: Location) -> tuple[str, ...]:
    """Of the path, the server first; () for what has none."""
    scheme = location.scheme.removeprefix("slatedb+")
    if scheme == "file":
        return ("file", *folder_of(location).parts)
    if scheme not in _BUCKETS:
        return ()
    parts = urlsplit(location.place)
    server = str(location.options.get("endpoint", ""))
    return (scheme, server, parts.netloc, *filter(None, parts.path.split("/")))


def folder_of(location: Location) -> Path:
    return Path(location.place).absolute().resolve()


class Folder:
    """A folder; it is made when it is first written to."""

    is_local = True

    def __init__(self, path: Path) -> None:
        self.path = path
        self.place = str(path)

    def sizes(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for folder, _, files in os.walk(self.path):
            for path in (Path(folder, name) for name in files if not name.endswith(_TEMPORARY)):
                with contextlib.suppress(FileNotFoundError):  # another backup's, which has just got its name
                    found[str(path.relative_to(self.path))] = path.lstat().st_size
        return found

    def read(self, name: str) -> bytes | None:
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(f"{self.place}/{name} cannot be read: {error.strerror}") from error

    def create(self, name: str, data: bytes) -> bool:
        return self._write(name, data, os.link)  # unlike a rename, it never replaces

    def replace(self, name: str, data: bytes) -> None:
        self._write(name, data, os.replace)

    def _write(self, name: str, data: bytes, put: Callable[[Path, Path], None]) -> bool:
        path = self.path / name
        temporary = path.with_name(f"{secrets.token_hex(8)}{_TEMPORARY}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with open(temporary, "xb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                put(temporary, path)
            except FileExistsError:
                return False
            finally:
                temporary.unlink(missing_ok=True)
            self._sync(path.parent)
        except OSError as error:
            raise StoreError(f"{path} cannot be written: {error.strerror}") from error
        return True

    def _sync(self, folder: Path) -> None:
        """The names too, up to the target itself."""
        for each in (folder, self.path, self.path.parent):
            fd = os.open(each, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)


class Bucket:
    """A bucket, or a prefix of one."""

    is_local = False

    def __init__(self, location: Location) -> None:
        from ..stores.log.bucket import address
        from ..stores.log.bucket.requests import Wire
        from ..stores.log.bucket.usage import Tally

        options = store_options(config.load().store, location.options, {})
        self.place = address.shown(location.place)
        self._wire = Wire(
            address.bucket(location.place, options), self.place, Tally(), timeout=options.operation_timeout
        )

    def sizes(self) -> dict[str, int]:
        found: dict[str, int] = {}
        last = ""
        while page := self._wire.page("", last, self._wire.until()):
            found |= {each.key: each.size for each in page}
            last = page[-1].key
        return found

    def read(self, name: str) -> bytes | None:
        got = self._wire.get(name, self._wire.until())
        return None if got is None else got.data

    def create(self, name: str, data: bytes) -> bool:
        from ..stores.log.bucket.faults import Doubt, Refused

        in_doubt = False
        for attempt in range(1, TRIES + 1):
            try:
                self._wire.create(name, data)
                return True
            except Refused:
                return in_doubt and self.read(name) == data  # a try whose answer was lost may have written it
            except Doubt:
                in_doubt = True
                time.sleep(_AGAIN.after(attempt))
        raise Unavailable(f"{self.place} did not take {name}")

    def replace(self, name: str, data: bytes) -> None:
        self._wire.put(name, data, self._wire.until())
