"""The version before: the tree of the commit before the last change of a store's format, out of this repository."""

from __future__ import annotations

import io
import os
import re
import subprocess
import tarfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
_FORMATS = "src/holdfast/stores/formats.py"
_MIGRATIONS = "src/holdfast/stores/postgres/sql/migrations"
_LINES = {"file": "LOG", "s3": "LOG", "nats": "NATS"}  # of the formats; PostgreSQL counts its migrations
_GIT_SECONDS = 60.0


class NoHistory(Exception):
    """There is no commit to build the version before from; says why."""


class Older:
    """A tree of the version before, unpacked into a folder."""

    def __init__(self, store: str, folder: Path) -> None:
        self.commit = commit_before(store)
        self.folder = folder / f"older-{store}"
        self.folder.mkdir(parents=True)
        packed = _git("archive", self.commit, "src", "chaos")
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(self.folder, filter="data")


def environment(tree: str) -> dict[str, str]:
    """What a process is started with, in the folder `tree`, so that it imports what lies there."""
    return {**os.environ, "PYTHONPATH": str(Path(tree) / "src")}


def commit_before(store: str) -> str:
    """The last commit with another format of this store than now; NoHistory."""
    path = _MIGRATIONS if store == "postgres" else _FORMATS
    now = _number(store, "HEAD")
    for commit in _git("log", "--format=%H", "--", path).decode().split():
        parents = _git("rev-list", "--parents", "-n", "1", commit).decode().split()[1:]
        if parents and _number(store, parents[0]) != now:
            return parents[0]
    raise NoHistory(
        f"no commit before the present format of {store} is in this repository's history, so there is no older version"
        " to run beside this one: fetch all of it (git fetch --unshallow)"
    )


def _number(store: str, commit: str) -> int | None:
    """The format at a commit; None: it has no number yet."""
    if store == "postgres":
        names = _git("ls-tree", "--name-only", commit, f"{_MIGRATIONS}/").decode().split()
        return max((int(Path(name).name[:3]) for name in names), default=None)
    if not _git("ls-tree", commit, _FORMATS):
        return None
    found = re.search(rf"^{_LINES[store]} = (\d+)", _git("show", f"{commit}:{_FORMATS}").decode(), re.MULTILINE)
    return int(found[1]) if found else None


def _git(*arguments: str) -> bytes:
    command = ["git", "-C", str(ROOT), *arguments]
    try:
        return subprocess.run(command, check=True, capture_output=True, timeout=_GIT_SECONDS).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", b"") or str(error).encode()
        raise NoHistory(
            f"the version before is built from this repository's history, and git does not give it: "
            f"{said.decode(errors='replace').strip()}"
        ) from error
