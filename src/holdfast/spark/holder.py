"""Who owns a consumer, in words that tell another process of the same machine whether that owner is still alive."""

from __future__ import annotations

import hashlib
import os
import socket


def myself() -> str:
    """This process: host, pid, and a mark that no later process of the same pid has."""
    return f"{socket.gethostname()}:{os.getpid()}:{_mark(os.getpid())}"


def is_gone(holder: str) -> bool:
    """Whether that process is known to have ended; False when it cannot be told from here."""
    host, _, rest = holder.rpartition(":")[0].rpartition(":")
    mark = holder.rpartition(":")[2]
    if host != socket.gethostname() or not rest.isdigit() or not mark or not _mark(os.getpid()):
        return False
    # The mark names the boot and the namespace of pids too: elsewhere ours begins differently.
    if mark[:8] != _mark(os.getpid())[:8]:
        return False
    return _mark(int(rest)) != mark


def _mark(pid: int) -> str:
    """Where pids are counted, and when this one began; "" where the system does not say."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
        namespace = os.readlink("/proc/self/ns/pid")
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return ""
    if fields[0] in ("Z", "X"):  # it has ended, and nobody has asked how
        return ""
    where = hashlib.blake2b(f"{boot} {namespace}".encode(), digest_size=4).hexdigest()
    return f"{where}-{fields[19]}"
