"""The blocking face: the same names, thread-safe, over one event-loop thread.

Every class here is made from the async one by the list in `NAMES`; what a type checker sees is `sync.pyi`, written by
`tools/make_sync_stub.py` from the same list.
"""

from __future__ import annotations

import functools
import inspect
import os
import threading
import types
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from . import app as _app
from . import archive as _archive
from . import broker as _broker
from . import dead_letters as _dead_letters
from . import deliveries as _deliveries
from . import errors as _errors
from . import queue as _queue
from . import scheduling as _scheduling
from . import worker as _worker
from .loop_thread import Portal, Visit, portal
from .worker.signals import Catcher, stopping
from .worker.threads import Threads

if TYPE_CHECKING:
    from .backups import Backup, OnProgress, Restored, Url

NAMES: dict[type, str] = {
    _broker.Broker: "url options queue create_queue queues configure_queue delete_queue stats on install uninstall"
    " check maintain close schedules dequeue worker",
    _queue.Queue: "name options dead archive enqueue enqueue_many dequeue dequeue_many deliveries complete"
    " complete_many fail fail_many release release_many kill kill_many extend extend_many list peek change"
    " take_back cancel wait status get stats refresh pause resume cleanup purge worker",
    _deliveries.Delivery: "id queue token value payload content_type headers priority attempt max_attempts enqueued_at"
    " expires_at expires receipt complete fail release kill extend",
    _dead_letters.DeadLetters: "list count replay delete purge worker",
    _archive.Archive: "list count replay delete purge",
    _scheduling.Schedules: "put get list pause resume trigger backfill delete tick",
    _worker.Worker: "worker_id queue queues concurrency is_running start stop wait run",
    _app.App: "url handlers schedules handler schedule broker queue open close workers run choose",
    _app.AppHandler: "queue_name queue_names queue enqueue enqueue_many worker",
}

_FACES: dict[type, type[Face]] = {}
_END = object()  # of an iterator

T = TypeVar("T")


class Face:
    """Something async, seen from threads that block. `core` is the async one."""

    __slots__ = ("_place", "core")
    __class_getitem__: ClassVar[Any] = classmethod(types.GenericAlias)

    def __init__(self, core: Any, place: Portal | Visit) -> None:
        self.core = core
        self._place = place

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._faced(_run(self._place, work))

    def _faced(self, value: Any) -> Any:
        """The blocking face of what has one, also in a list or dict of them."""
        if (face := _FACES.get(type(value))) is not None:
            return face(value, self._place)
        if type(value) is list and value and type(value[0]) in _FACES:
            return [self._faced(one) for one in value]
        if type(value) is dict and value and type(next(iter(value.values()))) in _FACES:
            return {key: self._faced(one) for key, one in value.items()}
        return value

    def __repr__(self) -> str:
        return f"sync.{self.core!r}"


class UnknownOutcome(_errors.UnknownOutcome):
    """The same error, with a `retry` that blocks."""

    def __init__(self, core: _errors.UnknownOutcome, place: Portal | Visit) -> None:
        super().__init__(str(core), ids=core.ids)
        self._core = core
        self._place = place

    def retry(self) -> list[str]:  # type: ignore[override] # that is the point
        """Repeat the same call with the same ids; what arrived already is not added again."""
        return _run(self._place, self._core.retry())


def _run(place: Portal | Visit, work: Coroutine[Any, Any, T]) -> T:
    try:
        return place.run(work)
    except _errors.UnknownOutcome as error:
        raise UnknownOutcome(error, place) from error.__cause__


# ---------------------------------------------------------------------- from async members to blocking ones


def _face(core: type) -> Any:
    """The blocking face of an async class."""
    members = {name: _member(core, name) for name in NAMES[core].split()}
    if hasattr(core, "__aenter__"):
        members |= {"__enter__": _enter, "__exit__": _leave}
    space = {"__slots__": (), "__module__": __name__, "__doc__": core.__doc__, **members}
    return type(core.__name__, (Face,), space)


def _member(core: type, name: str) -> Any:
    found = inspect.getattr_static(core, name, None)
    if inspect.iscoroutinefunction(found):
        return _blocking(name, found)
    if inspect.isasyncgenfunction(found):
        return _iterating(name, found)
    return _plain(name, found) if inspect.isfunction(found) else _attribute(name, found)


def _blocking(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The method that waits for the async one. Only deliveries are looked into: values can be many."""
    first = next(iter(list(inspect.signature(function).parameters)[1:]), "")
    takes_deliveries = first in ("delivery", "deliveries")

    @functools.wraps(function)
    def method(self: Face, *args: Any, **kwargs: Any) -> Any:
        if takes_deliveries:
            args = (*map(_bare, args[:1]), *args[1:])
            kwargs = {key: _bare(value) if key == first else value for key, value in kwargs.items()}
        return self._run(getattr(self.core, name)(*args, **kwargs))

    return method


def _iterating(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The generator that waits for each of the async one's."""

    @functools.wraps(function)
    def method(self: Face, *args: Any, **kwargs: Any) -> Iterator[Any]:
        source = getattr(self.core, name)(*args, **kwargs)
        try:
            while (found := self._run(_next(source))) is not _END:
                yield found
        finally:
            self._run(source.aclose())

    return method


async def _next(source: AsyncIterator[Any]) -> Any:
    return await anext(source, _END)


def _plain(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The method that has nothing to wait for."""

    @functools.wraps(function)
    def method(self: Face, *args: Any, **kwargs: Any) -> Any:
        return self._faced(getattr(self.core, name)(*args, **_with_faces(self, kwargs)))

    return method


def _attribute(name: str, found: Any) -> property:
    """A view of an attribute."""
    return property(lambda self: self._faced(getattr(self.core, name)), doc=getattr(found, "__doc__", None))


def _enter(self: Face) -> Face:
    self._run(self.core.__aenter__())
    return self


def _leave(self: Face, *error: Any) -> None:
    self._run(self.core.__aexit__(*error))


def _bare(value: Any) -> Any:
    """The async one behind a face; of a list, all."""
    if isinstance(value, Face):
        return value.core
    return [_bare(one) for one in value] if isinstance(value, list | tuple) else value


def _with_faces(face: Face, options: Mapping[str, Any]) -> dict[str, Any]:
    """A worker's options whose callbacks get blocking deliveries; async callbacks keep the async ones."""
    made = dict(options)
    for name in ("on_error", "on_complete"):
        callback = made.get(name)
        if callback is not None and not inspect.iscoroutinefunction(callback):
            made[name] = lambda *args, _callback=callback: _callback(*map(face._faced, args))
    return made


def _until_signal(place: Portal | Visit, workers: Iterable[_worker.Worker], work: Coroutine[Any, Any, None]) -> None:
    """Run these until they end; in the main thread SIGTERM and SIGINT stop them, a second signal at once."""
    if threading.current_thread() is not threading.main_thread():
        return place.run(work)
    catcher = Catcher(place.loop(), stopping(workers))
    catcher.install()
    try:
        return place.run(work)
    finally:
        catcher.remove()


# ---------------------------------------------------------------------- the faces


class Broker(_face(_broker.Broker)):  # type: ignore[misc] # made above
    __slots__ = ()

    @functools.wraps(_broker.Broker.on)
    def on(self, event: str, callback: Callable[..., Any]) -> Callable[[], None]:
        core: _broker.Broker = self.core
        if inspect.iscoroutinefunction(callback) or not callable(callback):
            return core.on(event, callback)
        # In a thread of its own a callback may block, and use this face.
        threads = Threads(1, f"holdfast-{event}")
        off = core.on(event, lambda happened: threads.submit(callback, happened))
        core.events.ends.add(threads.close)

        def leave() -> None:
            off()
            core.events.ends.discard(threads.close)
            threads.close()

        return leave


Queue = _face(_queue.Queue)
Delivery = _face(_deliveries.Delivery)
DeadLetters = _face(_dead_letters.DeadLetters)
Archive = _face(_archive.Archive)
Schedules = _face(_scheduling.Schedules)


class Worker(_face(_worker.Worker)):  # type: ignore[misc] # made above
    __slots__ = ()

    @functools.wraps(_worker.Worker.run)
    def run(self) -> None:
        _until_signal(self._place, [self.core], self.core.run())


class _OfApp(Face):
    """What belongs to an app runs where the app is open: in our loop, or in that of `holdfast worker run`."""

    __slots__ = ()

    @property
    def _place(self) -> Portal | Visit:  # type: ignore[override] # worked out, not kept
        app: _app.App = getattr(self.core, "app", self.core)
        ours = portal()
        if (broker := app._broker) is None or app._loop is None:
            return ours
        if broker.gone is not None:
            raise _errors.ConfigError(broker.gone)
        return ours if app._loop is ours.loop() else Visit(app._loop)

    def __init__(self, core: Any, place: Portal | Visit | None = None) -> None:
        self.core = core


class App(_OfApp, _face(_app.App)):  # type: ignore[misc] # made above
    __slots__ = ()

    def __init__(self, url: str | os.PathLike[str] | None = None, **options: Any) -> None:
        super().__init__(_app.App(url, **options))

    @functools.wraps(_app.App.handler)
    def handler(self, name: Any, type: Any = None, **options: Any) -> Callable[[Callable[..., Any]], Any]:
        declare = self.core.handler(name, type, **_with_faces(self, options))
        return lambda function: AppHandler(declare(function))

    @functools.wraps(_app.App.open)
    def open(self) -> App:
        self._run(self.core.open())
        return self

    @functools.wraps(_app.App.run)
    def run(self, queues: Iterable[str] | None = None, **options: Any) -> None:
        core, place = self.core, self._place
        was_open = core._broker is not None
        try:
            workers = place.run(core.workers(queues, **_with_faces(self, options)))
            _until_signal(place, workers, _app.run_all(workers))
        finally:
            if not was_open:
                place.run(core.close())


class AppHandler(_OfApp, _face(_app.AppHandler)):  # type: ignore[misc] # made above
    __slots__ = ("__dict__",)

    def __init__(self, core: Any, place: Portal | Visit | None = None) -> None:
        super().__init__(core)
        functools.update_wrapper(self, core.function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.core(*args, **kwargs)


_FACES.update(
    {
        _broker.Broker: Broker,
        _queue.Queue: Queue,
        _deliveries.Delivery: Delivery,
        _dead_letters.DeadLetters: DeadLetters,
        _archive.Archive: Archive,
        _scheduling.Schedules: Schedules,
        _worker.Worker: Worker,
        _app.AppHandler: AppHandler,
    }
)


def connect(url: str | os.PathLike[str] | None = None, *, pool: Any = None, **options: Any) -> Broker:
    """Open a store, now; use it as it is and `close` it, or as a context manager. As `holdfast.connect` otherwise.

    A `pool` belongs to the event loop that it was made in, which this face's never is: it is refused.
    """
    place = portal()
    return Broker(place.run(_opened(_broker.connect(url, pool=pool, **options))), place)


async def _opened(connecting: _broker.Connecting) -> _broker.Broker:
    return await connecting


def backup(source: Url | Broker, target: Url, *, on_progress: OnProgress | None = None) -> Backup:
    """As `holdfast.backup`, blocking."""
    from . import backups as _backups

    if isinstance(source, Broker):
        made: Backup = source._run(_backups.backup(source.core, target, on_progress=on_progress))
        return made
    return portal().run(_backups.backup(source, target, on_progress=on_progress))


def restore(
    target: Url, url: Url, *, prefix: str = "", number: int | None = None, on_progress: OnProgress | None = None
) -> Restored:
    """As `holdfast.restore`, blocking."""
    from . import backups as _backups

    return portal().run(_backups.restore(target, url, prefix=prefix, number=number, on_progress=on_progress))


def move(url: Url, to: Url, *, prefix: str = "", on_progress: OnProgress | None = None) -> Restored:
    """As `holdfast.move`, blocking."""
    from . import backups as _backups

    return portal().run(_backups.move(url, to, prefix=prefix, on_progress=on_progress))


__all__ = [
    *("App", "AppHandler", "Archive", "Broker", "DeadLetters", "Delivery", "Queue", "Schedules", "UnknownOutcome"),
    *("Worker", "backup", "connect", "move", "restore"),
]
