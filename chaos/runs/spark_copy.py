"""R13: a queue goes to another through Spark, on a cluster whose drivers and executors are killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import holdfast
from holdfast.stores.batches import Sink, batches_of
from holdfast.stores.log.bucket.store import LateStore
from holdfast.stores.opening import SCHEMES, sink_of

from ..settings import Settings
from ..verdict import EXAMPLES, Verdict

SOURCE, TARGET, CONSUMER = "source", "target", "etl"
_MASTER = "local-cluster[2,1,1024]"
_BATCH = 1000
_STUCK = 240.0  # seconds in which something must be settled, on a busy machine


@asynccontextmanager
async def place(store: str, root: Path) -> AsyncIterator[str]:
    """The URL of a fresh store that is read, as Spark takes it: keys are in the environment."""
    if store == "postgres":
        from tests.servers.postgres import Server as Database

        with Database() as database:
            yield database.url()
    elif store == "s3":
        from tests.servers import s3

        os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"] = s3.LIMITED
        with s3.Server() as server:
            yield f"s3://{s3.BUCKET}/chaos?endpoint={server.endpoint}&region={s3.REGION}&allow_http=true"
    else:
        yield f"file://{root / 'store'}"


@asynccontextmanager
async def target_of(store: str, source: holdfast.Broker, url: str) -> AsyncIterator[tuple[holdfast.Broker, str]]:
    """Where the messages go: NATS is written from a folder, every other store from itself."""
    if store != "nats":
        yield source, url
        return
    from tests.servers.nats import Server as Nats

    with Nats() as server:
        async with holdfast.connect(server.url) as broker:
            yield broker, server.url


class Pipeline:
    """The driver program, started again whenever it was killed."""

    def __init__(
        self, url: str, root: Path, settings: Settings, *, master: str = _MASTER, target: str | None = None
    ) -> None:
        self.url = url
        self.target = target or url
        self.root = root
        self.settings = settings
        self.master = master
        self.starts = 0
        self.process: asyncio.subprocess.Process | None = None

    async def start(self, *, kill_at: str = "") -> None:
        self.starts += 1
        here = str(Path(__file__).parents[2])
        path = os.pathsep.join([str(Path(here) / "src"), here, os.environ.get("PYTHONPATH", "")])
        limit = max(50, self.settings.messages // 20)
        command = [
            sys.executable, "-m", "chaos.spark.driver", "--url", self.url, "--target-url", self.target,
            "--source", SOURCE, "--target", TARGET,
            "--consumer", CONSUMER, "--checkpoint", str(self.root / "checkpoint"),
            "--scratch", str(self.root / "spark"), "--master", self.master, "--limit", str(limit), "--kill-at", kill_at,
        ]  # fmt: skip
        with (self.root / "driver.log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *command, stdout=log, stderr=log, env={**os.environ, "PYTHONPATH": path}, start_new_session=True
            )

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.returncode is None

    async def wait(self, seconds: float) -> int:
        assert self.process is not None
        return await asyncio.wait_for(self.process.wait(), seconds)

    def java(self) -> tuple[list[int], list[int]]:
        """Java processes of the driver program: its own, and those of executors below it."""
        assert self.process is not None
        above = _parents()
        drivers = [pid for pid, parent in above.items() if parent == self.process.pid and _is_java(pid)]
        return drivers, [pid for pid, parent in above.items() if parent in drivers and _is_java(pid)]

    async def kill_driver(self) -> None:
        assert self.process is not None
        drivers, _ = self.java()
        for pid in (self.process.pid, *drivers):
            _kill(pid)
        await self.process.wait()

    def kill_executor(self, chance: random.Random) -> bool:
        executors = self.java()[1]
        if not executors:
            return False
        _kill(chance.choice(executors))
        return True

    async def end(self) -> None:
        """Whatever is left of it."""
        if self.running:
            await self.kill_driver()


def _parents() -> dict[int, int]:
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            found[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    return found


def _is_java(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return os.path.basename(os.path.realpath(f"/proc/{pid}/exe")) == "java"
    return False


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


async def fill(broker: holdfast.Broker, count: int, shards: int = 1) -> None:
    """Messages of all shards, as many producers would leave them."""
    queue = await broker.queue(SOURCE, max_attempts=100, shards=shards)
    step = _BATCH if shards == 1 else max(1, min(_BATCH, count // (4 * shards)))
    for number, start in enumerate(range(0, count, step)):
        if isinstance(broker.store, LateStore):
            broker.store.home = number  # where a producer begins is luck
        await queue.enqueue_many(list(range(start, min(count, start + step))))


async def settled(broker: holdfast.Broker) -> int:
    return (await broker.store.stats(SOURCE)).completed


async def arrived(target: holdfast.Broker) -> Counter[int]:
    """The messages of the target by their numbers."""
    found: Counter[int] = Counter()
    if target.store.batches is None:  # nobody reads it but workers
        while claims := (await target.store.claim(TARGET, _BATCH, 600, wait=1.0)).messages:
            found.update(int(each.payload) for each in claims)
        return found
    for part in await target.store.batches.plan_scan(TARGET, "ready"):
        async for batch in target.store.batches.read_slice(part):
            found.update(int(value) for value in batch.column("value").to_pylist())
    return found


def sink_at(target: holdfast.Broker) -> Sink:
    kind = "nats" if target.store.batches is None else "file"
    return sink_of(target.store, SCHEMES[kind])


async def judge(
    broker: holdfast.Broker, count: int, verdict: Verdict, *, target: holdfast.Broker | None = None
) -> None:
    """Every message once in the target; nothing claimed, nothing staged is left."""
    target = target or broker
    batches, sink = batches_of(broker.store), sink_at(target)
    # What a killed task left on NATS is in the way of workers until its time is over: sweep first.
    swept, found = await sink.sweep(TARGET, 0.0), await arrived(target)
    missing = [number for number in range(count) if number not in found]
    twice = [number for number, times in found.items() if times > 1]
    stats = await broker.store.stats(SOURCE)
    verdict.attempted = verdict.acknowledged = count
    verdict.completed = stats.completed
    verdict.lost, verdict.duplicate_completions = len(missing), len(twice)
    verdict.examples |= {"lost": [str(n) for n in missing[:EXAMPLES]]} if missing else {}
    verdict.examples |= {"duplicate_completions": [str(n) for n in twice[:EXAMPLES]]} if twice else {}
    verdict.unexpected = sum(1 for number in found if not 0 <= number < count)
    verdict.unfinished = stats.pending + stats.processing + stats.retry
    consumers = await batches.consumers(SOURCE)
    claimed = sum(each.claimed for each in consumers)
    verdict.expect(claimed == 0, f"{claimed} messages are still claimed")
    verdict.notes["staged objects swept"] = swept + await sink.sweep(TARGET, 0.0)
    left = await sink.sweep(TARGET, 0.0)
    verdict.expect(left == 0, f"{left} staged objects are left after a sweep")


async def spark(settings: Settings) -> Verdict:
    """`producer_kills` drivers and `kills` executors are killed while `messages` go from one queue to another."""
    root = Path(tempfile.mkdtemp(prefix="holdfast-chaos-")) if settings.folder is None else settings.folder / "spark"
    root.mkdir(parents=True, exist_ok=True)
    try:
        async with (
            place(settings.store, root) as url,
            holdfast.connect(url) as broker,
            target_of(settings.store, broker, url) as (target, target_url),
        ):
            await target.queue(TARGET)
            return await _run(settings, Pipeline(url, root, settings, target=target_url), broker, target)
    finally:
        if settings.folder is None:
            shutil.rmtree(root, ignore_errors=True)


async def _run(settings: Settings, pipeline: Pipeline, broker: holdfast.Broker, target: holdfast.Broker) -> Verdict:
    shards = f", {settings.shards} shards" if settings.shards > 1 else ""
    verdict = Verdict(run=f"spark on {settings.store}{shards}")
    chance = random.Random(settings.seed)
    await fill(broker, settings.messages, settings.shards)
    faults = ["driver"] * settings.producer_kills + ["executor"] * settings.kills
    chance.shuffle(faults)
    begun = time.monotonic()
    try:
        for number, fault in enumerate(faults, 1):
            wanted = int(settings.messages * number / (len(faults) + 2))
            verdict.kills += await _fault(pipeline, broker, fault, wanted, chance)
            if not settings.quiet:
                print(f"{number} of {len(faults)} faults, {await settled(broker):,} settled", flush=True)
        if not pipeline.running:
            await pipeline.start()
        code = await pipeline.wait(settings.deadline)
        verdict.expect(code == 0, f"the last driver ended with {code}: {_end_of(pipeline.root / 'driver.log')}")
    finally:
        await pipeline.end()
    await judge(broker, settings.messages, verdict, target=target)
    verdict.notes |= {"driver starts": pipeline.starts, "seconds": round(time.monotonic() - begun, 1)}
    verdict.expect(verdict.kills == len(faults), f"only {verdict.kills} of {len(faults)} faults happened")
    return verdict


async def _fault(pipeline: Pipeline, broker: holdfast.Broker, fault: str, wanted: int, chance: random.Random) -> int:
    """Kill once so many messages are settled, and at some moment of a batch; 0: the pipeline was done before."""
    if not pipeline.running:
        await pipeline.start()
    before, since = -1, time.monotonic()
    while (done := await settled(broker)) < wanted and pipeline.running:
        if done > before:
            before, since = done, time.monotonic()
        if time.monotonic() > since + _STUCK:
            raise TimeoutError(f"no progress: {_end_of(pipeline.root / 'driver.log')}")
        await asyncio.sleep(0.2)
    await asyncio.sleep(chance.uniform(0.0, 1.0))
    if not pipeline.running:
        return 0
    if fault == "executor":
        return int(pipeline.kill_executor(chance))
    await pipeline.kill_driver()
    return 1


def _end_of(path: Path) -> str:
    return path.read_text(errors="replace")[-2000:] if path.exists() else "no log"
