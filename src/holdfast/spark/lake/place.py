"""Where a table of a lake lies: in a folder that driver and executors share, or in a bucket.

Commits are files that are created only if absent; data files have names of their own and are never written over.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit, urlunsplit

from ... import config
from ...backups import targets
from ...errors import ConfigError, StoreError
from ...stores.opening import Location, locate, store_options
from ..options import check_url

_BUCKETS = ("s3", "gs", "az")


class Place(Protocol):
    """Methods block. Executors get a place by its `text`."""

    text: str

    @property
    def storage(self) -> dict[str, str] | None:
        """What delta-rs must know to reach it."""

    @property
    def shown(self) -> str:
        """For people, and for what reads Delta tables."""

    def below(self, name: str) -> Place:
        """A folder in it."""

    def create(self, name: str, data: bytes) -> bool:
        """Durable when it returns; False: the name is taken."""

    def read(self, name: str) -> bytes | None: ...

    def sync(self, name: str) -> None:
        """Make durable what a library wrote."""

    def writing(self, name: str) -> Any:
        """A context with a path to write a data file to; durable under its name at the end."""

    def source(self, name: str) -> Any:
        """What pyarrow reads a data file from."""

    def names(self, folder: str) -> list[str]:
        """Of all files below a folder, relative to this place."""

    def delete(self, name: str) -> None: ...

    def move(self, name: str, new: str) -> None:
        """Durable when it returns. Nothing happens when there is no such file: it was moved before."""


def open_place(given: str | os.PathLike[str]) -> Place:
    """A path, file:// or the URL of a bucket; ConfigError. Nothing is made."""
    location = locate(given)
    if location.scheme == "file":
        return Folder(targets.folder_of(location))
    if location.scheme in _BUCKETS:
        check_url(str(given))
        return Bucket(str(given), location)
    raise ConfigError(
        f"{location.scheme}:// cannot hold a lake; give a folder that driver and executors share, or a bucket "
        "as s3://bucket/prefix"
    )


class Folder:
    """A folder; it is made when it is first written to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = str(path)
        self._target = targets.Folder(path)

    @property
    def storage(self) -> dict[str, str] | None:
        return None

    @property
    def shown(self) -> str:
        return self.text

    def below(self, name: str) -> Folder:
        return Folder(self.path / name)

    def create(self, name: str, data: bytes) -> bool:
        return self._target.create(name, data)

    def read(self, name: str) -> bytes | None:
        return self._target.read(name)

    def sync(self, name: str) -> None:
        try:
            _sync(self.path / name)
            _sync((self.path / name).parent)
        except FileNotFoundError:  # of a log, it may have been cleaned up
            return

    @contextmanager
    def writing(self, name: str) -> Iterator[str]:
        path = self.path / name
        made = [each for each in (path.parent, *path.parent.parents) if not each.exists()]
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield str(path)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        for each in (path, path.parent, *(folder.parent for folder in made)):
            _sync(each)

    def source(self, name: str) -> str:
        return str(self.path / name)

    def names(self, folder: str) -> list[str]:
        root = self.path / folder
        return [str(path.relative_to(self.path)) for path in root.rglob("*") if path.is_file()]

    def delete(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)

    def move(self, name: str, new: str) -> None:
        path = self.path / new
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.replace(self.path / name, path)
        except FileNotFoundError:
            return
        for each in (path.parent, path.parent.parent):
            _sync(each)

    def __repr__(self) -> str:
        return f"Folder({self.text!r})"


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class Bucket:
    """A prefix of a bucket, through obstore; keys come from the environment."""

    def __init__(self, url: str, location: Location) -> None:
        self.text = url
        self._location = location
        self._options = store_options(config.load().store, location.options, {})
        self._opened: Any = None

    @property
    def storage(self) -> dict[str, str] | None:
        told = {"timeout": f"{self._options.operation_timeout:g}s"}
        if self._options.allow_http:
            told["allow_http"] = "true"
        if self._location.scheme == "s3":
            named = {"AWS_ENDPOINT_URL": self._options.endpoint, "AWS_REGION": self._options.region}
            told |= {name: value for name, value in named.items() if value is not None}
        return told

    @property
    def shown(self) -> str:
        return self._location.place.partition("?")[0]

    def below(self, name: str) -> Bucket:
        parts = urlsplit(self.text)
        url = urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{name}"))
        return Bucket(url, locate(url))

    @property
    def _bucket(self) -> Any:
        if self._opened is None:
            from ...stores.log.bucket import address

            self._opened = address.bucket(
                self._location.place, self._options, retries=targets.TRIES
            )  # every file has its own name
        return self._opened

    def create(self, name: str, data: bytes) -> bool:
        return targets.Bucket(self._location).create(name, data)

    def read(self, name: str) -> bytes | None:
        return targets.Bucket(self._location).read(name)

    def sync(self, name: str) -> None:
        """What a bucket has taken is durable."""

    @contextmanager
    def writing(self, name: str) -> Iterator[str]:
        handle, path = tempfile.mkstemp(prefix="holdfast-", suffix=".parquet")
        os.close(handle)
        try:
            yield path
            import obstore

            with self._plainly():
                obstore.put(self._bucket, name, Path(path))
        finally:
            os.unlink(path)

    def source(self, name: str) -> Any:
        import pyarrow as pa

        return pa.PythonFile(_Reader(self, name), mode="r")

    def names(self, folder: str) -> list[str]:
        import obstore

        with self._plainly():
            pages = obstore.list(self._bucket, prefix=f"{folder}/" if folder else None)
            return [each["path"] for page in pages for each in page]

    def delete(self, name: str) -> None:
        import obstore

        try:
            with self._plainly():
                obstore.delete(self._bucket, name)
        except FileNotFoundError:
            return

    def move(self, name: str, new: str) -> None:
        import obstore

        try:
            with self._plainly():
                obstore.copy(self._bucket, name, new)
                obstore.delete(self._bucket, name)
        except FileNotFoundError:
            return

    def range(self, name: str, start: int, end: int) -> bytes:
        import obstore

        with self._plainly():
            return bytes(obstore.get_range(self._bucket, name, start=start, end=end))

    def size(self, name: str) -> int:
        import obstore

        with self._plainly():
            return int(obstore.head(self._bucket, name)["size"])

    @contextmanager
    def _plainly(self) -> Iterator[None]:
        """Their errors may hold keys: a status says enough."""
        from obstore.exceptions import BaseError

        try:
            yield
        except FileNotFoundError:
            raise
        except (BaseError, OSError) as error:
            from ...stores.log.bucket import faults

            found = faults.sorted_out(error, self.shown)
            if isinstance(found, StoreError):
                raise found from None
            raise StoreError(f"{self.shown} did not answer ({found})") from None

    def __repr__(self) -> str:
        return f"Bucket({self.shown!r})"


class _Reader:
    """An object as a file that pyarrow seeks in; each read is one request."""

    def __init__(self, bucket: Bucket, name: str) -> None:
        self._bucket, self._name = bucket, name
        self._size, self._at = bucket.size(name), 0
        self.closed = False

    def read(self, count: int = -1) -> bytes:
        end = self._size if count is None or count < 0 else min(self._size, self._at + count)
        if end <= self._at:
            return b""
        data = self._bucket.range(self._name, self._at, end)
        self._at = end
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def size(self) -> int:
        return self._size

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True


def fresh_name(folder: str = "") -> str:
    """A data file's name that nobody has."""
    name = f"part-{secrets.token_hex(12)}.parquet"
    return f"{folder}/{name}" if folder else name
