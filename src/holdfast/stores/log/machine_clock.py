"""The clocks of this machine: how long it has been up, which boot this is, and what it takes for the time."""

from __future__ import annotations

import ctypes
import sys
import time
from pathlib import Path


def since_boot() -> float:
    """Seconds since boot, time asleep included, the same in every process."""
    if sys.platform == "linux":
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    else:
        return time.clock_gettime(time.CLOCK_MONOTONIC)


def boot_id() -> str:
    """A name for this boot of this machine."""
    if sys.platform == "darwin":
        return _sysctl(b"kern.bootsessionuuid")
    else:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _sysctl(name: bytes) -> str:
    buffer = ctypes.create_string_buffer(64)
    size = ctypes.c_size_t(len(buffer))
    if ctypes.CDLL(None).sysctlbyname(name, buffer, ctypes.byref(size), None, ctypes.c_size_t(0)) != 0:
        raise OSError(f"sysctl {name.decode()} failed")
    return buffer.value.decode()


def wall_clock() -> float:
    """What the machine takes for the time; anybody may set it at any moment."""
    return time.time()
