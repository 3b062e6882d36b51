"""Worker processes: one runs here; more are children that are started again when they die."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import msgspec

from .. import config
from ..errors import ConfigError
from ..escaping import logger_named
from ..metrics import Metrics
from ..retry import Exponential
from ..stores.opening import locate
from .child import BAD_ORDER, Order
from .naming import named
from .run import SETTLE_S
from .signals import caught
from .waiting import opened

Start: TypeAlias = Callable[[], Awaitable[asyncio.subprocess.Process]]

_LOG = logger_named("holdfast.worker")
RESTART = Exponential(base=0.5, cap=30.0, jitter=False)  # seconds before a child that died is started again
_STEADY_S = 60.0  # after which a child's death is no sequel to the one before


@runtime_checkable
class App(Protocol):
    """A `holdfast.App`, which stands above its workers."""

    url: Any
    handlers: dict[str, Any]

    def choose(self, queues: Sequence[str] | None = None) -> list[Any]: ...

    async def open(self) -> Any: ...

    async def broker(self) -> Any: ...

    async def run(self, queues: Sequence[str] | None = None, **options: Any) -> None: ...

    async def close(self) -> None: ...


def run_app(
    spec: str,
    *,
    url: str | None = None,
    concurrency: int | None = None,
    processes: int = 1,
    queues: Sequence[str] = (),
    wait: bool = True,
    metrics_port: int | None = None,
    log_format: Literal["text", "json"] = "text",
) -> None:
    """Run the workers of `MODULE:APP` until SIGTERM or SIGINT; SystemExit when they did not end well.

    `wait`: a store that is not there is waited for; else Unavailable. `metrics_port`: of the first process, the others
    have those above it.
    """
    ports = () if metrics_port is None else tuple(range(metrics_port, metrics_port + processes))
    order = Order(spec, url, concurrency, tuple(queues), wait, ports, log_format)
    app = load_app(spec)  # also when children do the work: what is wrong is said once, here
    app.choose(queues)
    if processes > 1:
        _refuse_many(url if url is not None else app.url)
    if processes == 1:
        run_here(order)
    elif code := asyncio.run(_run_children(order, app, processes)):
        raise SystemExit(code)


async def _run_children(order: Order, app: App, processes: int) -> int:
    """Whether the store is there is found out, and said, once: here and not by each of the children."""
    _direct(app, order)
    if not await opened(app.open, wait=order.wait):
        return 0
    await app.close()
    return await run_processes(lambda: _start_child(order), processes, grace=_longest_grace(app))


def _refuse_many(url: Any) -> None:
    """Children on a store that one process owns would only take it from each other, again and again."""
    location = locate(url if url is not None else config.load().url or config.DEFAULT_URL)
    if location.kind.owner != "any":
        raise ConfigError(f"{location.scheme}:// belongs to one process at a time: use --concurrency, not --processes")


def run_here(order: Order) -> None:
    """Run the workers in this process."""
    app = load_app(order.spec)
    _direct(app, order)
    asyncio.run(_run(app, order))


async def _run(app: App, order: Order) -> None:
    try:
        if await opened(app.open, wait=order.wait):
            with _measured(await app.broker(), order.metrics_ports):
                await app.run(order.queues or None, concurrency=order.concurrency)
    finally:
        await app.close()


@contextmanager
def _measured(broker: Any, ports: Sequence[int]) -> Iterator[None]:
    """Metrics on the first of the ports that is free; ConfigError when none is."""
    if not ports:
        yield
        return
    metrics = Metrics(broker)
    try:
        for port in ports:
            try:
                metrics.serve(port)
                break
            except ConfigError:
                if port == ports[-1]:
                    raise
        yield
    finally:
        metrics.close()


def _direct(app: App, order: Order) -> None:
    if order.url is not None:
        app.url = order.url


def load_app(spec: str) -> App:
    """The app that `MODULE:APP` names, seen from the working directory; ConfigError."""
    found = named(spec, shape="MODULE:APP, such as tasks:app")
    found = getattr(found, "core", found)  # a sync.App is a face of one
    if not isinstance(found, App):
        raise ConfigError(f"{spec} is a {type(found).__qualname__}, not a holdfast.App")
    return found


def _longest_grace(app: App) -> float:
    default = config.WorkerOptions().grace
    return max((handler.worker_options.get("grace") or default for handler in app.handlers.values()), default=default)


async def _start_child(order: Order) -> asyncio.subprocess.Process:
    # a session of its own: Ctrl-C reaches the children through us, once
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "holdfast.worker.child", stdin=asyncio.subprocess.PIPE, start_new_session=True
    )
    assert child.stdin is not None
    child.stdin.write(msgspec.json.encode(order) + b"\n")
    return child


async def run_processes(start: Start, count: int, *, grace: float) -> int:
    """Keep `count` children running until SIGTERM or SIGINT, which is passed on; the exit code."""
    supervisor = Supervisor(start)
    with caught(supervisor.stop):
        slots = [asyncio.create_task(supervisor.keep_one(number)) for number in range(1, count + 1)]
        await supervisor.stopping.wait()
        _, late = await asyncio.wait(slots, timeout=grace + 2 * SETTLE_S)
        if late:
            _LOG.error("%d worker processes did not stop in time and are killed", len(late))
            supervisor.tell(signal.SIGKILL)
            await asyncio.wait(late)
    return 1 if late or supervisor.hopeless else 0


class Supervisor:
    """Starts children, starts them again when they die, passes signals on."""

    def __init__(self, start: Start) -> None:
        self._start = start
        self._children: set[asyncio.subprocess.Process] = set()
        self.stopping = asyncio.Event()
        self.hopeless = False

    def stop(self) -> None:
        """Once: finish; twice: at once. The children tell the difference."""
        self.stopping.set()
        self.tell(signal.SIGTERM)

    def tell(self, number: signal.Signals) -> None:
        for child in self._children:
            if child.returncode is None:
                child.send_signal(number)

    async def keep_one(self, number: int) -> None:
        """One child at a time in this place."""
        deaths = 0
        while not self.stopping.is_set():
            started_at = time.monotonic()
            code = await self._run_one()
            if self.stopping.is_set():
                return
            if code == BAD_ORDER:
                self.hopeless = True
                self.stop()
                return
            deaths = 1 if time.monotonic() - started_at > _STEADY_S else deaths + 1
            pause = RESTART.after(deaths)
            _LOG.warning("worker process %d ended with %s; starting another in %.1f s", number, code, pause)
            await self._sleep(pause)

    async def _run_one(self) -> int:
        child = await self._start()
        self._children.add(child)
        if self.stopping.is_set():  # a signal came while it was being started
            child.send_signal(signal.SIGTERM)
        try:
            return await child.wait()
        finally:
            self._children.discard(child)

    async def _sleep(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self.stopping.wait(), seconds)
        except TimeoutError:
            pass
