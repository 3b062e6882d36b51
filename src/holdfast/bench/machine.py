"""What a result needs to be read later: date, versions, machine. No host names, no paths."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata

import msgspec


class Machine(msgspec.Struct, frozen=True):
    """Where and with what a result was measured."""

    date: str
    cores: int
    memory_gib: float
    system: str
    python: str
    versions: dict[str, str]


def machine(versions: Mapping[str, str] | None = None) -> Machine:
    """This machine, today."""
    import apsw

    ours = {name: metadata.version(name) for name in ("holdfast", "apsw", "msgspec", "pyarrow")}
    return Machine(
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory_gib=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        system=platform.system(),
        python=platform.python_version(),
        versions=ours | {"sqlite": apsw.sqlite_lib_version()} | dict(versions or {}),
    )


def resident_bytes() -> int:
    """Memory this process holds now; 0 where the system does not say."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def written_bytes() -> int:
    """Bytes this process has caused to be written to the disk so far; 0 where the system does not say."""
    try:
        with open("/proc/self/io") as file:
            return next((int(line.split()[1]) for line in file if line.startswith("write_bytes")), 0)
    except OSError:
        return 0
