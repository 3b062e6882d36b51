"""/seam/v1: the methods of the open store, one to one, for the `http://` store. See `stores/http/wire.py`."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from .. import reporter
from ..errors import ConfigError, HoldfastError, UnknownOutcome
from ..schedules import Plan
from ..stores.base import DEAD, LONG_POLL_S, CallName, Store, remembering
from ..stores.http import wire
from ..stores.http.wire import Append, AppendOnce, Hello
from ..stores.records import Claims, Enqueued, Envelope, Settlement, Stored, Uniform
from ..stores.scheduling import Fire, Scheduled, Schedules
from ..stores.values import Value, Values
from ..stores.worker_reports import ProcessReport
from . import workers
from .gate import HOLDER, Receive, Scope, Send
from .problems import Refused, send_problem, status_of
from .served import Served, is_gone
from .tokens import Holder, Role

_REMEMBERED_CALLS = 10_000  # where the store remembers none: for clients whose connection broke, not their server
_WAITING = ("claim", "ready", "watch")  # how long they take tells nothing of the store
_NOTHING = Claims([])
_OF_VALUES = ("values_get", "values_put", "values_delete", "values_sweep")  # of no queue: not for who has some only


class Seam:
    """An ASGI application of its own: nothing stands between a request and the store."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._calls: OrderedDict[str, asyncio.Future[Any]] = OrderedDict()
        self._has_forgotten = False  # some of them
        self._special: dict[str, Callable[..., Awaitable[Any]]] = {
            "open": self._open,
            "append": self._append,
            "append_once": self._append_once,
            "claim": self._claim,
            "ready": self._ready,
            "watch": self._watch,
            "get": self._get,
            "scan": self._scan,
            "upcoming": self._upcoming,
            "peek": self._peek,
            "cancel": self._cancel,
            "take_back": self._take_back,
            "queues": self._queues,
            "stats_of_all": self._stats_of_all,
            "delete_queue": self._delete_queue,
            "discard": self._discard,
            "recover": self._recover,
            "install": self._install,
            "uninstall": self._uninstall,
            "maintain": self._maintain,
            "schedules": self._all_schedules,
            "schedules_of": self._schedules_of,
            "change_schedule": self._change_schedule,
            "fire_schedules": self._fire_schedules,
            "worker_reports": self._worker_reports,
            "report_workers": self._report_workers,
            "values_get": self._values_get,
            "values_put": self._values_put,
            "values_delete": self._values_delete,
            "values_sweep": self._values_sweep,
        }

    @property
    def _store(self) -> Store:
        return self._served.broker.store

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            name = scope["path"].removeprefix(wire.PREFIX)
            verb = wire.VERBS.get(name)
            if verb is None or scope["method"] != "POST":
                raise Refused(404, "no such verb", "the seam is for the http:// store of the same version")
            holder: Holder = scope[HOLDER]
            if not holder.may(verb.role):
                raise Refused(403, "not allowed", f"{name} needs the role {verb.role}")
            arguments = _read(verb, (await receive())["body"])
            _check_reach(holder, verb.role, () if name in _OF_VALUES else arguments)
            do, began = self._special.get(name), time.monotonic()
            answer = await (do(holder, receive, arguments) if do else getattr(self._store, name)(*arguments))
        except HoldfastError as error:
            return await _answer(send, status_of(error), wire.encode(wire.failure(error)))
        except Refused as error:
            return await send_problem(send, error)
        except Exception as error:  # noqa: BLE001 - the edge of a request
            return await send_problem(send, error)
        if name not in _WAITING:
            self._served.metrics.requested(name, time.monotonic() - began)
        await _answer(send, 200, wire.encode(answer))

    # ------------------------------------------------------------------ what is not passed on as it is

    async def _open(self, holder: Holder, receive: Receive, arguments: tuple[()]) -> Hello:
        can = self._store.capabilities
        keeps = self._keeps_worker_reports
        return Hello(
            wire.VERSION,
            self._served.id,
            can.prefetch,
            can.batch_size,
            can.remembers_calls,
            keeps,
            can.keeps_values and not holder.queues,
        )

    async def _append(self, holder: Holder, receive: Receive, asked: Append) -> list[str]:
        columns = asked.columns
        messages: Sequence[Envelope] = (
            asked.envelopes if columns is None else Uniform(columns.payloads, columns.content_type, columns.terms)
        )
        store = remembering(self._store)
        if store is not None:
            return await store.append_call(asked.queue, messages, CallName(asked.call, asked.digest))
        do = partial(self._store.append, asked.queue, messages)
        if len(messages) == 1 and messages[0].dedup_key is None:
            do = partial(self._served.single, asked.queue, do)
        return await asyncio.shield(self._remembered(asked, do))

    async def _append_once(self, holder: Holder, receive: Receive, asked: AppendOnce) -> list[Enqueued]:
        if asked.repeats:
            asked = msgspec.structs.replace(asked, after=None)
        do = partial(self._store.append_once, asked.queue, asked.envelopes, asked.dedup, replace=asked.replace)
        found: list[Enqueued] = await asyncio.shield(self._remembered(asked, do))
        return found

    def _remembered(self, asked: Append, do: Callable[[], Awaitable[Any]]) -> asyncio.Future[Any]:
        """Where the store forgets a call, this process knows it; another one cannot say what the first has done."""
        found = self._calls.get(asked.call)
        if found is not None and found.done() and isinstance(unclear := found.exception(), UnknownOutcome):
            again = do if isinstance(asked, AppendOnce) and asked.repeats else unclear.retry
            found = self._calls[asked.call] = asyncio.ensure_future(again())
        if found is None:
            if asked.after not in (None, self._served.id):
                raise UnknownOutcome("the server was restarted while it was asked; its store remembers no calls")
            if asked.after is not None and self._has_forgotten:
                raise UnknownOutcome("the server may have forgotten this call; its store remembers none")
            found = asyncio.ensure_future(do())
            self._calls[asked.call] = found
            if len(self._calls) > _REMEMBERED_CALLS:
                self._calls.popitem(last=False)
                self._has_forgotten = True
        return found

    async def _claim(
        self, holder: Holder, receive: Receive, asked: tuple[str, int, float, float, str | None]
    ) -> Claims:
        queue, limit, lease, wait, worker = asked
        if wait <= 0:
            return (
                _NOTHING
                if self._served.closing.is_set()
                else await self._store.claim(queue, limit, lease, worker=worker)
            )
        claiming = self._store.claim(queue, limit, lease, wait=min(wait, LONG_POLL_S), worker=worker)
        claims = await self._served.wait_for(claiming, receive) or _NOTHING
        if claims.messages and await is_gone(receive):
            await self._store.settle(queue, [Settlement(each.id, each.token, "release") for each in claims.messages])
        return claims

    async def _ready(self, holder: Holder, receive: Receive, asked: tuple[list[str], float]) -> list[str]:
        queues, wait = asked
        return await self._served.wait_for(self._store.ready(queues, wait=min(wait, LONG_POLL_S)), receive) or []

    async def _watch(self, holder: Holder, receive: Receive, asked: tuple[str, float]) -> None:
        queue, timeout = asked
        await self._served.wait_for(self._store.watch(queue, min(timeout, LONG_POLL_S)), receive)

    async def _get(self, holder: Holder, receive: Receive, asked: tuple[str, list[str]]) -> list[Stored | None]:
        found = await self._store.get(*asked)
        return found if self._shows(holder) else [each and _hidden(each) for each in found]

    async def _scan(self, holder: Holder, receive: Receive, asked: tuple[str, Any, str | None, int]) -> list[Stored]:
        queue, view, after, limit = asked
        return self._records(holder, await self._store.scan(queue, view, after=after, limit=limit))

    async def _upcoming(self, holder: Holder, receive: Receive, asked: tuple[str, Any, Any, int]) -> list[Stored]:
        queue, view, after, limit = asked
        return self._records(holder, await self._store.upcoming(queue, view, after=after, limit=limit))

    async def _peek(self, holder: Holder, receive: Receive, asked: tuple[str, int]) -> list[Stored]:
        return self._records(holder, await self._store.peek(*asked))

    def _records(self, holder: Holder, found: list[Stored]) -> list[Stored]:
        return found if self._shows(holder) else [_hidden(each) for each in found]

    async def _cancel(self, holder: Holder, receive: Receive, asked: tuple[str, str, bool]) -> bool:
        queue, id, running = asked
        return await self._store.cancel(queue, id, running=running)

    async def _take_back(self, holder: Holder, receive: Receive, asked: tuple[str, Any, str | None]) -> int:
        queue, ids, worker = asked
        return await self._store.take_back(queue, ids, worker=worker)

    def _shows(self, holder: Holder) -> bool:
        return holder.may("work") or self._served.settings.show_payloads

    async def _queues(self, holder: Holder, receive: Receive, asked: tuple[()]) -> Any:
        return [info for info in await self._store.queues() if holder.reaches(info.name)]

    async def _stats_of_all(self, holder: Holder, receive: Receive, asked: tuple[()]) -> Any:
        return [pair for pair in await self._store.stats_of_all() if holder.reaches(pair[0].name)]

    async def _delete_queue(self, holder: Holder, receive: Receive, asked: tuple[str, bool]) -> None:
        name, force = asked
        await self._served.broker.delete_queue(name, force)
        self._served.forget(name)

    async def _discard(self, holder: Holder, receive: Receive, asked: tuple[str, Any, Any, Any]) -> int:
        queue, view, ids, before = asked
        return await self._store.discard(queue, view, ids, before=before)

    async def _recover(self, holder: Holder, receive: Receive, asked: tuple[str, bool]) -> Any:
        return await self._store.recover(asked[0], delete=asked[1])

    async def _install(self, holder: Holder, receive: Receive, asked: tuple[bool]) -> list[str]:
        return await self._store.install(dry_run=asked[0])

    async def _uninstall(self, holder: Holder, receive: Receive, asked: tuple[()]) -> list[str]:
        return await self._served.uninstall()

    async def _maintain(self, holder: Holder, receive: Receive, asked: tuple[str]) -> dict[str, int]:
        return {} if self._store.is_resting(asked[0]) else await self._store.maintain(asked[0])

    @property
    def _schedules(self) -> Schedules:
        found = self._store.schedules
        if found is None:
            raise ConfigError("this store keeps no schedules")
        return found

    async def _all_schedules(self, holder: Holder, receive: Receive, asked: tuple[()]) -> list[Scheduled]:
        return [each for each in await self._schedules.all() if holder.reaches(each.plan.queue)]

    async def _schedules_of(self, holder: Holder, receive: Receive, asked: tuple[str]) -> list[Scheduled]:
        return await self._schedules.of(*asked)

    async def _change_schedule(
        self, holder: Holder, receive: Receive, asked: tuple[str, str, Plan | None, Plan | None]
    ) -> bool:
        """Whether it was as the client had seen it, and so is now as it shall be."""
        queue, name, seen, wanted = asked
        was_seen = False

        def change(kept: Plan | None) -> Plan | None:
            nonlocal was_seen
            was_seen = kept == seen
            return wanted if was_seen else kept

        await self._schedules.change(name, queue, change)
        return was_seen

    async def _fire_schedules(self, holder: Holder, receive: Receive, asked: tuple[str, list[Fire]]) -> list[bool]:
        return await self._schedules.fire(*asked)

    @property
    def _keeps_worker_reports(self) -> bool:
        """None on a bucket unless its server was asked to."""
        return reporter.is_wanted(self._store, self._served.broker.options)

    async def _worker_reports(self, holder: Holder, receive: Receive, asked: tuple[()]) -> list[ProcessReport]:
        return workers.seen_by(holder, await workers.found(self._served.broker) or [])

    async def _report_workers(self, holder: Holder, receive: Receive, asked: tuple[ProcessReport]) -> None:
        reports = self._store.worker_reports
        if reports is not None and self._keeps_worker_reports:
            await reports.put(workers.checked(*asked))

    @property
    def _values(self) -> Values:
        found = self._store.values
        if found is None:
            raise ConfigError("this store keeps no values")
        return found

    async def _values_get(self, holder: Holder, receive: Receive, asked: tuple[list[str]]) -> list[Value | None]:
        return await self._values.get(*asked)

    async def _values_put(
        self, holder: Holder, receive: Receive, asked: tuple[str, bytes, str | None, float | None]
    ) -> str | None:
        key, data, expected, expires_in = asked
        return await self._values.put(key, data, expected=expected, expires_in=expires_in)

    async def _values_delete(self, holder: Holder, receive: Receive, asked: tuple[list[str]]) -> None:
        await self._values.delete(*asked)

    async def _values_sweep(self, holder: Holder, receive: Receive, asked: tuple[()]) -> int:
        return await self._values.sweep()


def _read(verb: wire.Verb, body: bytes) -> Any:
    try:
        return verb.read_request(body)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ConfigError(f"not what the seam expects: {error}") from error


def _check_reach(holder: Holder, role: Role, arguments: Any) -> None:
    """A holder with patterns names a queue that fits; of all queues, and of the store, nothing but looks."""
    if not holder.queues:
        return
    first = arguments.queue if isinstance(arguments, Append) else next(iter(arguments), None)
    if isinstance(first, ProcessReport):
        fits = all(holder.reaches(queue.removesuffix(DEAD)) for each in first.workers for queue in each.queues)
        if not fits:
            raise Refused(403, "not allowed", "this token is for other queues")
        return
    named = first if isinstance(first, list) else [first]
    queues = [each for each in named if isinstance(each, str)]
    fits = all(holder.reaches(each.removesuffix(DEAD)) for each in queues) if queues else role == "read"
    if not fits:
        raise Refused(403, "not allowed", "this token is for other queues")


def _hidden(stored: Stored) -> Stored:
    return msgspec.structs.replace(stored, payload=b"null", content_type="application/json", headers=None, result=None)


async def _answer(send: Send, status: int, body: bytes) -> None:
    headers = [(b"content-type", wire.MSGPACK.encode()), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
