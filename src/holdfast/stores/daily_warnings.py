"""Warnings that everybody should see once, and nobody with every command: once per store and day, on this machine.

A day's first process leaves an empty file in the user's cache; the others see it and stay silent.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from datetime import UTC, datetime
from pathlib import Path

_reminded: set[str] = set()  # in this process, where no file can be written


def is_due(what: str, store: str, *, day: str | None = None) -> bool:
    """Whether this process is the first today to say it of this store; `day` is for tests."""
    digest = hashlib.sha256(f"{what} {store}".encode()).hexdigest()[:32]
    today = day or datetime.now(UTC).strftime("%Y%m%d")
    mark = f"{digest}-{today}"
    if mark in _reminded:
        return False
    _reminded.add(mark)
    folder = _folder()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(folder / mark, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return False
    except OSError:  # no home, or no right to write there
        return True
    _forget(folder, digest, mark)
    return True


def _folder() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(cache) / "holdfast" / "reminded"


def _forget(folder: Path, digest: str, kept: str) -> None:
    """The marks of other days."""
    with contextlib.suppress(OSError):
        for path in folder.glob(f"{digest}-*"):
            if path.name != kept:
                path.unlink(missing_ok=True)
