"""Something done to every message of a queue that fits: in slices, with progress, until somebody stops it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias
from uuid import uuid4

import msgspec

from ..errors import ConfigError, HoldfastError, MessageNotFound
from ..escaping import logger_named
from ..queue import Queue
from ..stores.base import CALLS_AT_ONCE, PAGE_ROWS
from ..stores.records import Stored, View
from .search import Wanted, is_wanted

_LOG = logger_named("holdfast.server")
_KEPT_JOBS = 100  # for people who come back to see what became of one

Verb: TypeAlias = Literal["replay", "delete", "cancel", "take-back"]
State: TypeAlias = Literal["running", "done", "stopped", "failed"]

VERBS: dict[View, tuple[Verb, ...]] = {  # what can be done to messages of a state
    "ready": ("cancel",),
    "delayed": ("cancel",),
    "retry": ("cancel",),
    "processing": ("take-back", "cancel"),
    "dead": ("replay", "delete"),
    "archive": ("replay", "delete"),
}


class Job(msgspec.Struct, kw_only=True):
    """One of them, and how far it is."""

    id: str
    who: str
    queue: str
    view: View
    verb: Verb
    wanted: Wanted
    total: int  # messages of this state when it began: what it will look at, about
    began: datetime
    ended: datetime | None = None
    looked: int = 0
    done: int = 0
    state: State = "running"
    why: str = ""


def check(view: View, verb: str) -> Verb:
    """ConfigError where messages of this state know nothing of it."""
    for each in VERBS[view]:
        if each == verb:
            return each
    raise ConfigError(f"verb: one of {', '.join(VERBS[view])}, not {verb!r}")


class Jobs:
    """Those of one store, the newest last. They end with the server: what was done stays done."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._running: dict[str, asyncio.Task[None]] = {}

    def start(
        self,
        queue: Queue[Any],
        job: Job,
        *,
        hidden: Sequence[str] = (),
        ended: Callable[[Job], Awaitable[None]],
    ) -> None:
        """`ended` is called with the job when it has ended, however that came."""
        self._jobs[job.id] = job
        task = asyncio.ensure_future(self._run(queue, job, hidden, ended))
        self._running[job.id] = task
        for id in [id for id in self._jobs if id not in self._running][:-_KEPT_JOBS]:
            del self._jobs[id]

    def find(self, id: str) -> Job | None:
        return self._jobs.get(id)

    def all(self) -> list[Job]:
        return list(reversed(self._jobs.values()))

    async def stop(self, id: str) -> None:
        """What is under way is finished first; harmless on one that has ended."""
        job = self._jobs.get(id)
        if job is not None and job.state == "running":
            job.state = "stopped"
            await asyncio.wait([self._running[id]])

    async def end(self) -> None:
        """Stop all, at once."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)

    async def _run(
        self, queue: Queue[Any], job: Job, hidden: Sequence[str], ended: Callable[[Job], Awaitable[None]]
    ) -> None:
        try:
            await _work(queue, job, hidden)
            job.state = "done" if job.state == "running" else job.state
        except HoldfastError as error:
            job.state, job.why = "failed", str(error) or type(error).__name__
        except Exception:  # noqa: BLE001 - the edge of a job: nobody else would hear of it
            job.state, job.why = "failed", "see the log of the server"
            _LOG.exception("a job on %s failed", job.queue)
        except asyncio.CancelledError:
            job.state = "stopped"
            raise
        finally:
            job.ended = datetime.now(UTC)
            self._running.pop(job.id, None)
        await ended(job)


async def _work(queue: Queue[Any], job: Job, hidden: Sequence[str]) -> None:
    after: str | None = None
    while job.state == "running":
        page = await queue.store.scan(queue.name, job.view, after=after, limit=PAGE_ROWS)
        fits = await asyncio.to_thread(_fitting, page, job.wanted, hidden)
        if fits:
            job.done += await _do(queue, job, fits)
        job.looked += len(page)
        if len(page) < PAGE_ROWS:
            return
        after = page[-1].id


def _fitting(page: Sequence[Stored], wanted: Wanted, hidden: Sequence[str]) -> list[str]:
    return [one.id for one in page if is_wanted(one, wanted, hidden)]


async def _do(queue: Queue[Any], job: Job, ids: Sequence[str]) -> int:
    """How many it was done to: others may have been quicker."""
    if job.verb == "take-back":
        return await queue.take_back(ids)
    if job.verb == "cancel":
        return await _cancel(queue, ids, running=job.view == "processing")
    letters = queue.dead if job.view == "dead" else queue.archive
    return int(await (letters.replay if job.verb == "replay" else letters.delete)(ids))


async def _cancel(queue: Queue[Any], ids: Sequence[str], *, running: bool) -> int:
    """The store knows it for one message: some at a time, so that they share a commit."""

    async def one(id: str) -> bool:
        try:
            return await queue.cancel(id, running=running)
        except MessageNotFound:
            return False

    done = 0
    for start in range(0, len(ids), CALLS_AT_ONCE):
        done += sum(await asyncio.gather(*(one(id) for id in ids[start : start + CALLS_AT_ONCE])))
    return done


def new_id() -> str:
    return uuid4().hex
