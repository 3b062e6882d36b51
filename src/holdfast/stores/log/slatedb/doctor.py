"""The lines of a SlateDB database for `holdfast doctor`."""

from __future__ import annotations

import shutil
import time
from importlib.metadata import PackageNotFoundError, version

from ...base import Check
from ..folder.opening import file_system
from .binding import copies
from .location import Place

_LITTLE_SPACE = 1 << 30
_FORGETFUL = frozenset({"tmpfs", "ramfs", "overlay"})
_COPIES = {
    "replaced": "bytes are passed in one copy, by a replacement of ours for the binding's loop",
    "not needed": "bytes are passed in one copy",
    "not understood": "the binding may pass bytes one by one, which is slow: 160 ms for 1 MiB",
}


def lines(place: Place, flush_interval: float, now: float) -> list[Check]:
    state = copies()
    ahead = now - time.time()
    often = f"at most every {flush_interval:g} s" if flush_interval > 0 else "with every group of writes"
    return [
        Check("slatedb", "ok", f"SlateDB {_version()}; one process at a time owns {place.text}, and it is this one"),
        Check("binding", "warn" if state == "not understood" else "ok", _COPIES[state]),
        Check("flush", "ok", f"the log is flushed {often}; nothing is acknowledged before"),
        *(_disk(place) if place.is_local else [Check("bucket", "ok", "what is acknowledged is in the bucket")]),
        Check(
            "clock", "ok" if abs(ahead) < 5.0 else "warn", f"the store's clock is {ahead:+.3f} s from the wall clock"
        ),
    ]


def _disk(place: Place) -> list[Check]:
    kind = file_system(place.folder)
    free = shutil.disk_usage(place.folder).free
    lasting = "does not outlive the machine or container" if kind in _FORGETFUL else "survives a power cut"
    return [
        Check("file system", "warn" if kind in _FORGETFUL or kind == "unknown" else "ok", f"{kind}: {lasting}"),
        Check(
            "sync", "ok", "files of SlateDB, which does not sync them, are synced by Holdfast before it acknowledges"
        ),
        Check("free space", "ok" if free >= _LITTLE_SPACE else "warn", f"{free >> 20} MiB free"),
    ]


def _version() -> str:
    try:
        return version("slatedb")
    except PackageNotFoundError:
        return "of unknown version"
