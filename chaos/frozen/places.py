"""Stores, and what can happen to the server or the process that each of them waits for."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

from tests.servers import nats, postgres, s3
from tests.servers.http import Request, Response
from tests.servers.proxy import Proxy
from tests.servers.serving import ServerProcess

from .valve import Valve
from .wire import Wire

SLOW_SECONDS = 0.4  # more for every piece, or for every request to a bucket
_SMALL_DISK = "size=400m"
_DISK_BYTES = 400 << 20
_HOLDER = """
import fcntl, os, signal, sys
with open(sys.argv[1], "r+b") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    print("held", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
"""
Fault = tuple[Callable[[], None], Callable[[], None]]  # how it begins, how it is over


class Place:
    """A store's URL and the faults that it can have, by name."""

    def __init__(self, url: str, faults: dict[str, Fault]) -> None:
        self.url = url
        self.faults = faults


@contextlib.contextmanager
def opened(store: str) -> Iterator[Place]:
    with contextlib.ExitStack() as stack:
        yield _PLACES[store](stack)


def _server_faults(server: Any, pid: Callable[[], int]) -> dict[str, Fault]:
    """Of every server that is a process with children."""
    return {
        "stopped": (lambda: _signal(pid(), signal.SIGSTOP), lambda: _signal(pid(), signal.SIGCONT)),
        "restarted": (lambda: _restart(server), lambda: None),
        "gone": (lambda: _end(server), server.start),
    }


def _signal(pid: int, which: signal.Signals) -> None:
    process = psutil.Process(pid)
    for each in (process, *process.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            each.send_signal(which)


def _restart(server: Any) -> None:
    _end(server)
    server.start()


def _end(server: Any) -> None:
    if isinstance(server, postgres.Server):
        server.stop(immediate=True)
    else:
        server.kill()


def _small_disk(stack: contextlib.ExitStack, folder: Path) -> dict[str, Fault]:
    """A file system of its own below a server, where we may mount one."""
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", _SMALL_DISK, "holdfast", folder], capture_output=True)
    if mounted.returncode:
        return {}
    stack.callback(subprocess.run, ["umount", "-l", str(folder)], capture_output=True, check=False)
    filler = folder / "filler"
    return {"full": (lambda: _fill(filler), lambda: filler.unlink(missing_ok=True))}


def _disk(stack: contextlib.ExitStack, folder: Path) -> dict[str, Fault]:
    """A disk below a folder that we may stop, slow down and write-protect: ext4 in a file, where we may mount one."""
    image = folder.parent / f"{folder.name}.ext4"
    with image.open("wb") as file:
        file.truncate(_DISK_BYTES)
    stack.callback(image.unlink, missing_ok=True)
    making, mounting = ["mkfs.ext4", "-q", "-m", "0", str(image)], ["mount", "-o", "loop", str(image), str(folder)]
    for command in (making, mounting):
        try:
            subprocess.run(command, capture_output=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            return {}
    stack.callback(subprocess.run, ["umount", "-l", str(folder)], capture_output=True, check=False)
    valve = Valve(folder)
    stack.callback(valve.open)
    filler = folder / "filler"
    return {
        "full": (lambda: _fill(filler), lambda: filler.unlink(missing_ok=True)),
        "slow": (valve.pulse, valve.open),
        "hung": (valve.shut, valve.open),
        "read-only": (lambda: _protect(folder, "+i"), lambda: _protect(folder, "-i")),
    }


def _protect(folder: Path, flag: str) -> None:
    """Also what is open cannot be written any more. The index of SQLite's log can: it is mapped, and a write to a
    mapped page that may not be written ends the process, whoever owns it."""
    store = folder / "store"
    paths = [store, *(path for path in store.rglob("*") if path.is_dir() or path.parent == store)]
    kept = [path for path in paths if not path.name.endswith("-shm")]
    subprocess.run(["chattr", flag, *kept], check=False, capture_output=True)  # a file may be gone by now


def _fill(filler: Path) -> None:
    with filler.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(1 << 16))


# ---------------------------------------------------------------------- the stores


def _postgres(stack: contextlib.ExitStack) -> Place:
    server = postgres.Server(settings={"max_wal_size": "64MB", "wal_recycle": "off"})
    disk = _small_disk(stack, server.folder)
    if server._user is not None:
        os.chown(server.folder, server._user.pw_uid, server._user.pw_gid)
    stack.enter_context(server)
    wire = stack.enter_context(contextlib.closing(Wire(server.port)))
    faults = _server_faults(server, lambda: server._process.pid)  # type: ignore[union-attr] # it runs
    faults |= {"slow": _slow(wire), "read-only": (lambda: _read_only(server, "on"), lambda: _read_only(server, "off"))}
    return Place(f"postgresql://postgres@127.0.0.1:{wire.port}/postgres", faults | disk)


def _slow(wire: Wire, seconds: float = SLOW_SECONDS) -> Fault:
    return lambda: setattr(wire, "delay", seconds), lambda: setattr(wire, "delay", 0.0)


def _read_only(server: postgres.Server, state: str) -> None:
    import psycopg

    with psycopg.connect(server.url(), autocommit=True) as admin:
        admin.execute("SET default_transaction_read_only = off")
        admin.execute(f"ALTER SYSTEM SET default_transaction_read_only = {state}".encode())
        admin.execute("SELECT pg_reload_conf()")


_WRITES = (
    *("holdfast.>", "$O.>", "$JS.API.STREAM.CREATE.>", "$JS.API.STREAM.UPDATE.>", "$JS.API.STREAM.DELETE.>"),
    *("$JS.API.STREAM.PURGE.>", "$JS.API.STREAM.MSG.DELETE.>", "$JS.API.CONSUMER.CREATE.>"),
    "$JS.API.CONSUMER.DELETE.>",
)


def _nats(stack: contextlib.ExitStack) -> Place:
    server = nats.Server(_user(denied=()))
    disk = _small_disk(stack, server.folder)
    stack.enter_context(server)
    wire = stack.enter_context(contextlib.closing(Wire(urlsplit(server.url).port or 0)))
    faults = _server_faults(server, lambda: server._process.pid)  # type: ignore[union-attr] # it runs
    faults |= {
        "slow": _slow(wire),
        "read-only": (lambda: server.reload(_user(denied=_WRITES)), lambda: server.reload(_user(denied=()))),
    }
    return Place(
        f"nats://127.0.0.1:{wire.port}", faults | {kind: _until_restart(server, *one) for kind, one in disk.items()}
    )


def _until_restart(server: nats.Server, begin: Callable[[], None], end: Callable[[], None]) -> Fault:
    """JetStream goes on refusing what it once could not write until the server is started again."""

    def over() -> None:
        end()
        _restart(server)

    return begin, over


def _user(denied: Sequence[str]) -> str:
    """Everybody is this one, and may do all but publish there."""
    deny = ", ".join(f'"{subject}"' for subject in denied)
    rights = f'permissions: {{publish: {{allow: ">", deny: [{deny}]}}, subscribe: ">"}}'
    return f"no_auth_user: all\nauthorization {{users: [{{user: all, password: all, {rights}}}]}}"


class Refusing(Proxy):
    """A proxy to a bucket that may refuse every write, with this status and code."""

    refusal: tuple[int, str] | None = None

    async def _handle(self, request: Request) -> Response | None:
        if self.refusal is not None and request.method != "GET" and request.method != "HEAD":
            status, code = self.refusal
            self.counts.faults[code] += 1
            return Response(status, {"content-type": "application/xml"}, f"<Error><Code>{code}</Code></Error>".encode())
        return await super()._handle(request)


def _s3(stack: contextlib.ExitStack, scheme: str = "") -> Place:
    server = stack.enter_context(s3.Server())
    proxy = stack.enter_context(Refusing(server.port))
    faults = _server_faults(server, lambda: server.pid or 0)

    def refuse(how: tuple[int, str] | None) -> Callable[[], None]:
        return lambda: setattr(proxy, "refusal", how)

    faults |= {
        "slow": (lambda: setattr(proxy, "latency", SLOW_SECONDS), lambda: setattr(proxy, "latency", 0.0)),
        "full": (refuse((507, "InsufficientStorage")), refuse(None)),
        "read-only": (refuse((403, "AccessDenied")), refuse(None)),
    }
    return Place(scheme + server.url("frozen", endpoint=proxy.endpoint), faults)


def _slate(stack: contextlib.ExitStack) -> Place:
    return _s3(stack, "slatedb+")


def _file(stack: contextlib.ExitStack) -> Place:
    root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-frozen-")))
    disk = _disk(stack, root) or _small_disk(stack, root)
    folder = root / "store"
    holders: list[subprocess.Popen[str]] = []

    def stop_a_holder() -> None:
        program = [sys.executable, "-c", _HOLDER, str(folder / "lock")]
        holders.append(subprocess.Popen(program, stdout=subprocess.PIPE, text=True))
        assert holders[-1].stdout is not None
        holders[-1].stdout.readline()

    def end_it() -> None:
        holder = holders.pop()
        holder.kill()
        holder.wait()

    return Place(f"file://{folder}", {"stopped": (stop_a_holder, end_it)} | disk)


def _http(stack: contextlib.ExitStack) -> Place:
    """A folder that another process serves. Maintenance is a request for each queue: slow is less here."""
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-frozen-"))
    server = stack.enter_context(ServerProcess(f"file://{folder}/store"))
    wire = stack.enter_context(contextlib.closing(Wire(urlsplit(server.address).port or 0)))
    faults = _server_faults(server, lambda: server.pid)
    return Place(f"http://127.0.0.1:{wire.port}", faults | {"slow": _slow(wire, SLOW_SECONDS / 4)})


_PLACES: dict[str, Callable[[contextlib.ExitStack], Place]] = {
    "file": _file, "postgres": _postgres, "nats": _nats, "s3": _s3, "slatedb": _slate, "http": _http,
}  # fmt: skip
STORES = tuple(_PLACES)
