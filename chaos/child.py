"""The processes that are hurt: `python -m chaos.child ROLE SPEC`. They die with their parent."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import msgspec

import holdfast
from holdfast.stores.opening import locate, open_store, store_options
from holdfast.stores.records import JSON, Envelope

from . import wrong_clocks
from .disk.small import limit_while
from .history import History, Started
from .recorder import KEY, Recorder

QUEUE = "chaos"
_PAUSE = 0.1  # seconds before who was refused tries again
_AWAY_S = 60.0  # that a server may be away which a process is started beside
FENCED = 17  # how an owner ends that another has taken the store from


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """What a child is told."""

    name: str
    url: str
    folder: str  # of the histories
    seed: int = 0
    messages: int = 0  # a producer's share
    rate: float = 1000.0  # messages per second of one producer
    kinds: dict[str, int] = {}  # a producer's special messages, by kind
    work: float = 0.01  # mean seconds of a handler
    concurrency: int = 8
    lease: float = 2.0
    timeout: float | None = None  # seconds one attempt may take
    body: int = 0  # more bytes of a message
    persists: bool = False  # a producer goes on, with other messages, when the store refuses some
    full: str = ""  # while this file is there, the process cannot write to files
    tree: str = ""  # of another version, that the process runs instead of this one; see `older.py`
    clock: str = ""  # of the wall: seconds ahead, with a sign, or "x" and how fast it runs; see `wrong_clocks`


def die_with_parent() -> None:
    """The parent holds the other end of stdin; when it is gone, so are we."""

    def wait() -> None:
        os.read(0, 1)  # not sys.stdin: its lock would be in the way at exit
        os._exit(3)

    threading.Thread(target=wait, daemon=True).start()


def history_path(folder: str | Path, name: str) -> Path:
    return Path(folder) / f"{name}.jsonl"


async def open_recorded(spec: Spec, history: History) -> holdfast.Broker:
    """A broker whose store writes down what it answers."""
    location, deadline = locate(spec.url), time.monotonic() + _AWAY_S
    while True:
        try:
            # A broker that is dropped closes it.
            store = await open_store(location, store_options({}, location.options, {}))
            break
        except holdfast.Unavailable:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(_PAUSE)
    return holdfast.Broker(Recorder(store, history, name=spec.name))


async def produce(spec: Spec, history: History) -> None:
    """Small calls of changing size, one after the other, at a steady rate."""
    broker = await open_recorded(spec, history)
    queue = await _queue(broker, spec)
    chance, number, start = random.Random(spec.seed), 0, time.monotonic()
    for kind, count in spec.kinds.items():
        for _ in range(count):
            number += 1
            await _send_special(broker, queue, spec, kind, number)
    sent = 0
    while sent < spec.messages:
        size = min(spec.messages - sent, chance.choice((1, 1, 3, 20, 50)))
        values = [_message(spec.name, number + place + 1, "healthy", spec.body) for place in range(size)]
        sent += size if await _accepted(queue, values, spec) else 0
        number += size
        await asyncio.sleep(max(0.0, start + sent / spec.rate - time.monotonic()))
    await broker.close()


async def _queue(broker: holdfast.Broker, spec: Spec) -> holdfast.Queue[Any]:
    while True:
        try:
            return await broker.queue(QUEUE)
        except holdfast.Unavailable:  # what is done to the store may come before the first call
            if not spec.persists:
                raise
            await asyncio.sleep(_PAUSE)


async def _accepted(queue: holdfast.Queue[Any], values: list[holdfast.Message[Any]], spec: Spec) -> bool:
    try:
        await queue.enqueue_many(values)
    except holdfast.Unavailable:
        if not spec.persists:
            raise
        await asyncio.sleep(_PAUSE)
        return False
    return True


def _message(producer: str, number: int, kind: str, body: int = 0) -> holdfast.Message[Any]:
    key = f"{producer}/{number}"
    value = {"key": key, "kind": kind} | ({"body": os.urandom(body // 2).hex()} if body else {})
    return holdfast.Message(value, headers={KEY: key, "kind": kind})


async def _send_special(
    broker: holdfast.Broker, queue: holdfast.Queue[Any], spec: Spec, kind: str, number: int
) -> None:
    if kind == "undecodable":  # no queue would let this through: it goes to the store by hand
        headers = {KEY: f"{spec.name}/{number}", "kind": kind}
        await broker.store.append(QUEUE, [Envelope(b'{"half": ', JSON, headers)])
    else:
        await queue.enqueue_many([_message(spec.name, number, kind)])


async def work(spec: Spec, history: History) -> None:
    """A worker until SIGTERM, or until one of its messages kills it."""
    broker = await open_recorded(spec, history)
    queue: holdfast.Queue[Any] = await broker.queue(QUEUE)
    chance = random.Random(spec.seed)

    async def handle(value: dict[str, str], context: holdfast.Context) -> None:
        history.write(Started(time.monotonic(), context.message_id, context.attempt))
        kind = "raise" if value["kind"] == "once" and context.attempt == 1 else value["kind"]
        await _behave(kind, spec, chance.uniform(0, 2 * spec.work))

    options = {} if spec.timeout is None else {"timeout": spec.timeout}
    await queue.worker(handle, concurrency=spec.concurrency, **options).run()
    await broker.close()


async def own(spec: Spec, history: History) -> None:
    """Produces and works on a store that one process owns, until SIGTERM or until another process has taken it."""
    broker = await open_recorded(spec, history)
    queue: holdfast.Queue[Any] = await broker.queue(QUEUE)
    chance = random.Random(spec.seed)

    async def handle(value: dict[str, str], context: holdfast.Context) -> None:
        history.write(Started(time.monotonic(), context.message_id, context.attempt))
        await asyncio.sleep(chance.uniform(0, 2 * spec.work))

    sending = [asyncio.create_task(_send(queue, f"{spec.name}{letter}", spec)) for letter in "ab"]
    try:
        await queue.worker(handle, concurrency=spec.concurrency).run()
    except holdfast.Fenced:
        # Everybody learns of it, not only whoever was writing.
        ends = await asyncio.wait_for(asyncio.gather(*sending, return_exceptions=True), 10)
        await broker.close()
        sys.exit(FENCED if all(isinstance(end, holdfast.Fenced) for end in ends) else f"producers ended with {ends}")
    for task in sending:
        task.cancel()
    await asyncio.wait(sending)
    await broker.close()


async def _send(queue: holdfast.Queue[Any], name: str, spec: Spec) -> None:
    number, start = 0, time.monotonic()
    while True:
        size = 1 + number % 7
        values = [_message(name, number + place + 1, "healthy", spec.body) for place in range(size)]
        await _accepted(queue, values, spec)
        number += size
        await asyncio.sleep(max(0.0, start + number / (spec.rate / 2) - time.monotonic()))


async def _behave(kind: str, spec: Spec, seconds: float) -> None:
    """Healthy messages take a moment; the others do what their name says."""
    match kind:
        case "exit":
            os._exit(9)
        case "oom":  # what the kernel does to a process that ate all memory
            os.kill(os.getpid(), signal.SIGKILL)
        case "hang":
            await asyncio.sleep(3600)
        case "block":
            time.sleep(2.5 * spec.lease)  # noqa: ASYNC251  # the bad manner is the point
        case "raise":
            raise ValueError("a handler that always fails")
        case _:
            await asyncio.sleep(seconds)


ROLES = {"produce": produce, "work": work, "own": own}


def main() -> None:
    role, spec = sys.argv[1], msgspec.json.decode(sys.argv[2], type=Spec)
    die_with_parent()
    wrong_clocks.apply(spec.clock)
    if spec.full:
        limit_while(spec.full)
    history = History(history_path(spec.folder, spec.name))
    asyncio.run(ROLES[role](spec, history))


if __name__ == "__main__":
    main()
