"""How each store is copied, put back and touched, by the means that its page allows."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import psycopg
from obstore.exceptions import PreconditionError
from psycopg import sql

from tests.servers import azure, nats, postgres, s3


class Place(Protocol):
    """A store and its copies. Whoever calls `copy` and `put_back` has closed the store before."""

    url: str
    ages: float  # seconds that messages must have waited before a copy shows anything
    is_one_moment: bool  # whether a copy under load is of one moment

    def copy(self) -> str:
        """A copy; its URL."""

    def copy_under_load(self) -> str | None:
        """The same while others write; None: its page does not allow it."""

    def put_back(self) -> None:
        """The last copy takes the place of the original."""

    def touch(self) -> int:
        """Everything is written again as it is, by those who only change dates, classes or keys; how many."""

    def touch_under_load(self) -> int:
        """The same while others write."""


class Folder:
    """`file://`."""

    ages = 0.0
    is_one_moment = True

    def __init__(self, root: Path, scheme: str = "file") -> None:
        self._root = root
        self._scheme = scheme
        self._copies = 0
        self.url = f"{scheme}://{root / 'store'}"

    def copy(self) -> str:
        return self._copied(lambda target: shutil.copytree(self._root / "store", target, symlinks=True))

    def copy_under_load(self) -> str | None:
        return self._copied(self._under_the_lock) if self._scheme == "file" else None

    def _copied(self, how: Any) -> str:
        self._copies += 1
        how(self._copy)
        return f"{self._scheme}://{self._copy}"

    @property
    def _copy(self) -> Path:
        return self._root / f"copy{self._copies}"

    def _under_the_lock(self, target: Path) -> None:
        """As the guide says: nobody commits meanwhile."""
        folder = self._root / "store"
        with (folder / "lock").open("r+b") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for directory, _, names in os.walk(folder):
                copies = target / Path(directory).relative_to(folder)
                copies.mkdir(parents=True, exist_ok=True)
                for name in names:
                    if not name.endswith((".tmp", "-shm")):
                        with contextlib.suppress(FileNotFoundError):
                            shutil.copy2(Path(directory, name), copies / name)

    def put_back(self) -> None:
        shutil.rmtree(self._root / "store")
        shutil.copytree(self._copy, self._root / "store", symlinks=True)

    def touch(self) -> int:
        files = [path for path in (self._root / "store").rglob("*") if path.is_file()]
        for path in files:
            path.touch()
        return len(files)

    def touch_under_load(self) -> int:
        return self.touch()


class Bucket:
    """`s3://` and `az://`: objects are read and written one by one, as `sync` does it."""

    ages = 17.0  # a block counts as late 15 s after its birth
    is_one_moment = False

    def __init__(self, server: s3.Server | azure.Server) -> None:
        self._server = server
        self._copies = 0
        self.url = server.url("store")

    def _objects(self, prefix: str) -> Any:
        """Heads last: what a head says was written before it."""
        driver = self._server.driver(prefix)
        found = [each["path"] for page in driver.list() for each in page]
        return driver, sorted(found, key=lambda key: (key.endswith("head"), key))

    def another(self, name: str) -> str:
        """An empty place beside it."""
        return self._server.url(name)

    def copy(self) -> str:
        self._copies += 1
        self._write("store", f"copy{self._copies}")
        return self._server.url(f"copy{self._copies}")

    def copy_under_load(self) -> str | None:
        return self.copy()

    def _write(self, source: str, target: str) -> None:
        driver, keys = self._objects(source)
        there = self._server.driver(target)
        for key in keys:
            with contextlib.suppress(FileNotFoundError):  # deleted since it was listed
                there.put(key, driver.get(key).bytes().to_bytes(), use_multipart=False)

    def put_back(self) -> None:
        driver, keys = self._objects("store")
        driver.delete(keys)
        self._write(f"copy{self._copies}", "store")

    def touch(self) -> int:
        """A new date and a new tag for everything, by a write that is refused where the object has changed."""
        driver, keys = self._objects("store")
        touched = 0
        for key in keys:
            with contextlib.suppress(FileNotFoundError, PreconditionError):
                got = driver.get(key)
                driver.put(key, got.bytes().to_bytes(), mode={"e_tag": got.meta["e_tag"]}, use_multipart=False)
                touched += 1
        return touched

    def touch_under_load(self) -> int:
        return self.touch()


class Database:
    """`postgresql://`: a template at rest, `pg_dump` under load."""

    ages = 0.0
    is_one_moment = True

    def __init__(self, server: postgres.Server) -> None:
        self._server = server
        self._copies = 0
        self._run("CREATE DATABASE {}", "store")
        self.url = server.url("store")

    def _run(self, text: str, *names: str) -> None:
        with psycopg.connect(self._server.url(), autocommit=True) as admin:
            admin.execute(sql.SQL(text).format(*(sql.Identifier(name) for name in names)))

    def another(self, name: str) -> str:
        """An empty place beside it."""
        self._run("CREATE DATABASE {}", name)
        return self._server.url(name)

    def copy(self) -> str:
        self._copies += 1
        self._run("CREATE DATABASE {} TEMPLATE {}", f"copy{self._copies}", "store")
        return self._server.url(f"copy{self._copies}")

    def copy_under_load(self) -> str | None:
        self._copies += 1
        name = f"copy{self._copies}"
        self._run("CREATE DATABASE {}", name)
        dump = [str(self._server.bin / "pg_dump"), "-Fc", self._server.url("store")]
        restore = [str(self._server.bin / "pg_restore"), "--exit-on-error", "-d", self._server.url(name)]
        made = subprocess.run(dump, check=True, capture_output=True)
        subprocess.run(restore, check=True, capture_output=True, input=made.stdout)
        return self._server.url(name)

    def put_back(self) -> None:
        self._run("DROP DATABASE {} WITH (FORCE)", "store")
        self._run("CREATE DATABASE {} TEMPLATE {}", "store", f"copy{self._copies}")

    def touch(self) -> int:
        """Every table is written again."""
        with psycopg.connect(self.url, autocommit=True) as admin:
            admin.execute("VACUUM FULL")
        return 1

    def touch_under_load(self) -> int:
        return self.touch()


class Streams:
    """`nats://`: the folder of a server that is stopped."""

    ages = 0.0
    is_one_moment = True

    def __init__(self, server: nats.Server) -> None:
        self._server = server
        self._copies: list[nats.Server] = []
        self.url = server.url

    def copy(self) -> str:
        copy = nats.Server()
        self._server.stop()
        shutil.copytree(self._server.folder / "data", copy.folder / "data", symlinks=True)
        shutil.copytree(self._server.folder / "data", copy.folder / "kept", symlinks=True)
        self._copies.append(copy.start())
        self._server.start()
        return copy.url

    def copy_under_load(self) -> str | None:
        return None

    def put_back(self) -> None:
        self._server.stop()
        shutil.rmtree(self._server.folder / "data")
        shutil.copytree(self._copies[-1].folder / "kept", self._server.folder / "data", symlinks=True)
        self._server.start()

    def touch(self) -> int:
        self._server.stop()
        files = [path for path in (self._server.folder / "data").rglob("*") if path.is_file()]
        for path in files:
            path.touch()
        self._server.start()
        return len(files)

    def touch_under_load(self) -> int:
        return 0

    def close(self) -> None:
        for copy in self._copies:
            copy.close()


@contextmanager
def opened(store: str, root: Path) -> Iterator[Place]:
    """A fresh store, with the servers it needs."""
    if store == "file":
        yield Folder(root)
    elif store == "slatedb":
        yield Folder(root, "slatedb+file")
    elif store == "postgres":
        with postgres.Server() as database:
            yield Database(database)
    elif store == "nats":
        with nats.Server() as server, contextlib.closing(Streams(server)) as streams:
            yield streams
    elif store in ("s3", "azure"):
        made: s3.Server | azure.Server = s3.Server() if store == "s3" else azure.Server()
        with made as bucket:
            yield Bucket(bucket)
    else:
        raise SystemExit(f"nobody knows how to copy {store!r}")
