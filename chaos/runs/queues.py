"""Ten thousand queues in one folder: made, filled, counted, listed, maintained, idle and drained; then a purge."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import holdfast

from ..settings import Settings
from ..verdict import Verdict

_EACH = 2  # messages of a queue
_AT_ONCE = 100  # calls
_LARGE_BYTES = 300_000  # a file of its own
_WORKERS = 1000  # queues with a worker in the idle phase, at most
_SETTLED_SECONDS = 75.0  # until every worker has looked after its queue, and all outcomes are written
_LIST_SECONDS, _STATS_SECONDS, _MAINTAIN_SECONDS = 2.0, 2.0, 120.0  # of 10,000 queues
_QUIET_PERCENT, _QUIET_SECONDS = 5.0, 60.0  # of a core; the longest that is waited for it
_SQUARE = 3.0  # times as long for each of five times as many queues: the upkeep grows with the square of them
_IDLE_PERCENT = 3.0  # of a core
_PURGED_BYTES = 20_000_000
_FILL_BYTES = 100_000  # of a message that is purged: in the database, not a file
_FILLED_OF_QUEUE_BYTES = 50_000  # what is purged for each queue of the run: 500 MB in all
_FILLED_LEAST_BYTES = 30_000_000


class _Table:
    """Figures of a run: seconds, processor seconds, and what they are about."""

    def __init__(self, verdict: Verdict) -> None:
        self._verdict = verdict
        self.seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str, count: int, processor: Callable[[], float] | None = None) -> Iterator[None]:
        processor = processor or _processor
        begun, used = time.perf_counter(), processor()
        yield
        took, used = time.perf_counter() - begun, processor() - used
        is_busy = os.getloadavg()[0] > (os.cpu_count() or 1)  # others take the time: only our own can be judged
        self.seconds[name] = used if is_busy else took
        judged = "; the machine is busy, so the latter counts" if is_busy else ""
        self._verdict.notes[name] = f"{took:.2f} s, {used:.2f} s of processor, {count:,}{judged}"


def _processor() -> float:
    """Seconds of this process and of children that have ended."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    return own.ru_utime + own.ru_stime + _processor_of_children()


def _processor_of_children() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


async def queues(settings: Settings) -> Verdict:
    """All phases on one folder; `strict` also judges the times."""
    root = Path(tempfile.mkdtemp(prefix="holdfast-chaos-")) if settings.folder is None else settings.folder / "queues"
    verdict = Verdict(run="queues")
    try:
        await _run(settings, verdict, root / "store")
    finally:
        if settings.folder is None:
            shutil.rmtree(root, ignore_errors=True)
    return verdict


async def _run(settings: Settings, verdict: Verdict, folder: Path) -> None:
    table, count = _Table(verdict), settings.queues
    # to each other the two are as other processes
    async with holdfast.connect(folder.as_uri()) as broker, holdfast.connect(folder.as_uri()) as other:
        part = count // 5
        with table.phase("create", count):
            handles = await _created(broker, count)
        with table.phase("enqueue", count * _EACH):
            await _enqueued(handles)
        await _completed(handles[:part], 1)
        with table.phase("maintain a fifth", part):
            await _maintained(broker, part)
        await _completed(handles[part:], 1)
        await _quiet()
        await _expect_counts(verdict, table, broker, count)
        with table.phase("queue list", count, _processor_of_children):
            await _listed(verdict, folder, count)
        with table.phase("maintain", count):
            await _maintained_while_others_write(verdict, broker, other)
        await _idle(settings, verdict, broker, min(count, _WORKERS))
        with table.phase("drain", count * (_EACH - 1)):
            await _completed(handles, _EACH - 1)
        await _expect_everything(verdict, broker, count)
        await _purge(verdict, table, broker, folder, max(_FILLED_LEAST_BYTES, count * _FILLED_OF_QUEUE_BYTES))
    if settings.strict:
        _judge(verdict, table.seconds, count)


def _in_parts(items: list[holdfast.Queue[int]]) -> Iterator[list[holdfast.Queue[int]]]:
    for start in range(0, len(items), _AT_ONCE):
        yield items[start : start + _AT_ONCE]


async def _created(broker: holdfast.Broker, count: int) -> list[holdfast.Queue[int]]:
    made: list[holdfast.Queue[int]] = []
    for start in range(0, count, _AT_ONCE):
        names = [f"q{number:05d}" for number in range(start, min(start + _AT_ONCE, count))]
        made += await asyncio.gather(*(broker.queue(name, int) for name in names))
    return made


async def _enqueued(handles: list[holdfast.Queue[int]]) -> None:
    for part in _in_parts(handles):
        await asyncio.gather(*(queue.enqueue_many(range(_EACH)) for queue in part))


async def _completed(handles: list[holdfast.Queue[int]], each: int) -> None:
    async def end(queue: holdfast.Queue[int]) -> None:
        for delivery in await queue.dequeue_many(each):
            await delivery.complete()

    for part in _in_parts(handles):
        await asyncio.gather(*map(end, part))


async def _quiet() -> None:
    """Until the outcomes of what was completed are written, which goes on behind the calls and would count there."""
    until = time.monotonic() + _QUIET_SECONDS
    while time.monotonic() < until:
        begun, used = time.perf_counter(), _processor()
        await asyncio.sleep(1.0)
        if 100 * (_processor() - used) / (time.perf_counter() - begun) < _QUIET_PERCENT:
            return


async def _maintained(broker: holdfast.Broker, count: int) -> None:
    for number in range(count):
        await broker.store.maintain(f"q{number:05d}")


async def _expect_counts(verdict: Verdict, table: _Table, broker: holdfast.Broker, count: int) -> None:
    with table.phase("stats", count):
        stats = await broker.stats()
    verdict.attempted = verdict.acknowledged = count * _EACH
    wrong = [name for name, each in stats.items() if (each.pending, each.completed) != (_EACH - 1, 1)]
    verdict.expect(len(stats) == count, f"{len(stats)} of {count} queues are counted")
    verdict.expect(not wrong, f"{len(wrong)} queues have other counts than were made, such as {wrong[:3]}")


async def _listed(verdict: Verdict, folder: Path, count: int) -> None:
    """As people ask for it: a process of its own."""
    code = "from holdfast.cli import main; main()"
    environment = {**os.environ, "HOLDFAST_URL": folder.as_uri()}
    command = (sys.executable, "-c", code, "queue", "list")
    process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    lines = len(output.splitlines())
    verdict.expect(lines == count + 1, f"`holdfast queue list` shows {lines} lines of {count} queues")


async def _maintained_while_others_write(verdict: Verdict, broker: holdfast.Broker, other: holdfast.Broker) -> None:
    """Nothing of another process may be taken for what a crash left."""
    large = await other.queue("large", bytes)
    both = [asyncio.create_task(each.maintain()) for each in (broker, other)]
    sent = 0
    while not all(task.done() for task in both):
        await large.enqueue(bytes(_LARGE_BYTES))
        sent += 1
        await asyncio.sleep(0.05)
    await asyncio.gather(*both)
    read = 0
    while found := await large.dequeue_many(100):
        for delivery in found:
            read += len(delivery.value) == _LARGE_BYTES
            await delivery.complete()
    verdict.expect(read == sent, f"{read} of {sent} large messages could be read that were sent during upkeep")
    verdict.notes["large messages sent during upkeep"] = sent
    await other.delete_queue("large", force=True)


async def _idle(settings: Settings, verdict: Verdict, broker: holdfast.Broker, count: int) -> None:
    """Workers on queues in which nothing happens."""

    async def handle(value: int) -> None:
        raise AssertionError("an empty queue gave a message")

    idle = [await broker.queue(f"idle{number}", int) for number in range(count)]
    workers = [queue.worker(handle) for queue in idle]
    for worker in workers:
        await worker.start()
    await asyncio.sleep(_SETTLED_SECONDS if settings.strict else 1.0)
    begun, used = time.perf_counter(), _processor()
    await asyncio.sleep(settings.seconds)
    percent = 100 * (_processor() - used) / (time.perf_counter() - begun)
    await asyncio.gather(*(worker.stop() for worker in workers))
    for queue in idle:
        await broker.delete_queue(queue.name, force=True)
    verdict.notes["idle"] = f"{percent:.2f} % of a core with workers on {len(workers):,} queues"
    if settings.strict:
        verdict.expect(percent < _IDLE_PERCENT, f"idle workers take {percent:.1f} % of a core")


async def _expect_everything(verdict: Verdict, broker: holdfast.Broker, count: int) -> None:
    stats = await broker.stats()
    verdict.completed = sum(each.completed for each in stats.values())
    verdict.lost = count * _EACH - verdict.completed
    verdict.unfinished = sum(each.pending + each.processing + each.retry for each in stats.values())


async def _purge(verdict: Verdict, table: _Table, broker: holdfast.Broker, folder: Path, size: int) -> None:
    queue = await broker.queue("purged", bytes)
    before = _size(folder)
    filled = size // _FILL_BYTES
    for _ in range(filled):
        await queue.enqueue(os.urandom(_FILL_BYTES))
    full = _size(folder)
    with table.phase("purge", filled):
        await queue.purge()
    left = _size(folder)
    verdict.notes["purge: MB before, and after"] = f"{full / 1e6:.0f}, {left / 1e6:.0f} (of queues: {before / 1e6:.0f})"
    verdict.expect(left < before + _PURGED_BYTES, f"{(left - before) / 1e6:.0f} MB of {size / 1e6:.0f} stayed")


def _size(folder: Path) -> int:
    names = (os.path.join(above, name) for above, _, found in os.walk(folder) for name in found)
    return sum(map(_bytes, names))


def _bytes(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except FileNotFoundError:
        return 0


def _judge(verdict: Verdict, seconds: dict[str, float], count: int) -> None:
    for name, limit in (("queue list", _LIST_SECONDS), ("stats", _STATS_SECONDS), ("maintain", _MAINTAIN_SECONDS)):
        verdict.expect(
            seconds[name] < limit * max(1.0, count / 10_000), f"{name} of {count:,} queues took {seconds[name]:.1f} s"
        )
    fifth, whole = seconds["maintain a fifth"] / (count / 5), seconds["maintain"] / count
    verdict.expect(whole < _SQUARE * fifth, f"upkeep of a queue takes {whole / fifth:.1f} times as long among more")
