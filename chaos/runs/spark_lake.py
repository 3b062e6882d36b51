"""`table` and `lake` on a cluster whose drivers and executors are killed: each message is one row, for every engine."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

import holdfast
from holdfast.spark.jobs.lake import drop_before
from holdfast.spark.lake import Lake, LakeConflict, parquet
from holdfast.spark.lake.lake import alone
from holdfast.spark.lake.place import open_place
from tests.spark.lake.engines import counts, counts_of

from ..settings import Settings
from ..spark.lake_driver import LAKE, ORDERS, PARCELS, PARQUET, TABLE, below
from ..verdict import EXAMPLES, Verdict
from .spark_copy import Pipeline

_BATCH = 1000
_BAD_EVERY = 1000  # messages: one that cannot be read
_STUCK = 180.0  # seconds in which something must be settled: two cores, and others use them
_MASTER = "local-cluster[2,1,1024]"


class LakePipeline(Pipeline):
    """Both tables, the lake and their compaction: started again whenever it was killed."""

    def __init__(self, url: str, place: str, root: Path, settings: Settings, *, master: str) -> None:
        super().__init__(url, root, settings, master=master)
        self.place = place
        self.doing = root / "doing"
        self.doing.mkdir()
        self.told = root / "told.json"

    async def start(self, *, kill_at: str = "") -> None:
        self.starts += 1
        for mark in self.doing.iterdir():
            mark.unlink()
        here = str(Path(__file__).parents[2])
        path = os.pathsep.join([str(Path(here) / "src"), here, os.environ.get("PYTHONPATH", "")])
        command = [
            sys.executable, "-m", "chaos.spark.lake_driver", "--url", self.url, "--place", self.place,
            "--scratch", str(self.root / "spark"), "--doing", str(self.doing), "--master", self.master,
            "--limit", str(max(50, self.settings.messages // 40)), "--told", str(self.told),
        ]  # fmt: skip
        with (self.root / "driver.log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *command, stdout=log, stderr=log, env={**os.environ, "PYTHONPATH": path}, start_new_session=True
            )

    def hit(self) -> list[str]:
        """What is going on."""
        return [mark.name.partition("-")[0] for mark in self.doing.iterdir()]

    def log(self) -> str:
        path = self.root / "driver.log"
        return path.read_text(errors="replace")[-2000:] if path.exists() else "no log"


@contextmanager
def place(store: str, root: Path) -> Iterator[str]:
    """Where the tables lie: a folder, or a bucket whose keys are in the environment."""
    if store != "s3":
        yield str(root / "tables")
        return
    from tests.servers import s3

    os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"] = s3.LIMITED
    with s3.Server() as server:
        yield f"s3://{s3.BUCKET}/chaos?endpoint={server.endpoint}&region={s3.REGION}&allow_http=true"


async def spark_lake(settings: Settings) -> Verdict:
    """`producer_kills` drivers and `kills` executors are killed while two queues become tables and a lake."""
    root = Path(tempfile.mkdtemp(prefix="holdfast-chaos-")) if settings.folder is None else settings.folder / "lake"
    root.mkdir(parents=True, exist_ok=True)
    url = f"file://{root / 'store'}"
    try:
        with place(settings.store, root) as at:
            async with holdfast.connect(url) as broker:
                master = _MASTER if settings.strict else "local[2,4]"
                return await _run(settings, LakePipeline(url, at, root, settings, master=master), broker)
    finally:
        if settings.folder is None:
            shutil.rmtree(root, ignore_errors=True)


async def fill(broker: holdfast.Broker, count: int) -> int:
    """So many messages, and how many more that cannot be read."""
    orders, parcels = await broker.queue(ORDERS, max_attempts=100), await broker.queue(PARCELS, max_attempts=100)
    for start in range(0, count, _BATCH):
        numbers = range(start, min(count, start + _BATCH))
        await orders.enqueue_many([{"n": n, "to": f"c{n % 97}", "tags": ["a"] * (n % 3)} for n in numbers])
        await orders.enqueue_many([{"n": f"bad {n}", "to": ""} for n in numbers if n % _BAD_EVERY == 0])
        await parcels.enqueue_many([{"n": n, "to": "p"} for n in numbers if n % 10 == 0])
    return -(-count // _BAD_EVERY)


async def _run(settings: Settings, pipeline: LakePipeline, broker: holdfast.Broker) -> Verdict:
    verdict = Verdict(run=f"spark-lake in a {'bucket' if settings.store == 's3' else 'folder'}")
    chance, begun = random.Random(settings.seed), time.monotonic()
    bad = await fill(broker, settings.messages)
    faults = ["driver"] * settings.producer_kills + ["executor"] * settings.kills
    chance.shuffle(faults)
    hits: Counter[str] = Counter()
    try:
        for number, fault in enumerate(faults, 1):
            wanted = settings.messages * (number - 1) // (len(faults) + 2)
            what = await _fault(pipeline, broker, fault, wanted, chance)
            verdict.kills += what is not None
            verdict.effective_kills += bool(what)
            hits.update(set(what or ()))
            _unique(pipeline.place, verdict)
            if not settings.quiet:
                print(f"{number} of {len(faults)}: {fault} killed in {sorted(set(what or ()))}", flush=True)
        await _end(pipeline, settings, verdict)
        verdict.notes |= {f"kills during {name}": count for name, count in sorted(hits.items())}
        await _judge(broker, pipeline, settings.messages, bad, verdict)
        _maintained(pipeline, verdict)
    finally:
        await pipeline.end()
    _retired(pipeline.place, verdict)
    verdict.notes |= {"driver starts": pipeline.starts, "seconds": round(time.monotonic() - begun, 1)}
    verdict.expect(verdict.kills == len(faults), f"only {verdict.kills} of {len(faults)} faults happened")
    verdict.expect(not settings.strict or verdict.effective_kills >= len(faults) // 2, "few kills hit a job")
    return verdict


async def _fault(
    pipeline: LakePipeline, broker: holdfast.Broker, fault: str, wanted: int, chance: random.Random
) -> list[str] | None:
    """Kill once so many messages are settled and a job is under way; what was hit. None: there was nothing to kill."""
    if not pipeline.running:
        await pipeline.start()
    before, since = -1, time.monotonic()
    while pipeline.running and ((done := (await broker.store.stats(ORDERS)).completed) < wanted or not pipeline.hit()):
        if done > before:
            before, since = done, time.monotonic()
        if time.monotonic() > since + _STUCK:
            raise TimeoutError(f"no progress: {pipeline.log()}")
        await asyncio.sleep(0.2)
    await asyncio.sleep(chance.uniform(0.0, 3.0 if pipeline.settings.strict else 1.0))
    if not pipeline.running:
        return None
    what = pipeline.hit()
    if fault == "executor":
        return what if pipeline.kill_executor(chance) else None
    await pipeline.kill_driver()
    return what


async def _end(pipeline: LakePipeline, settings: Settings, verdict: Verdict) -> None:
    if not pipeline.running:
        await pipeline.start()
    code = await pipeline.wait(settings.deadline)
    verdict.expect(code == 0, f"the last driver ended with {code}: {pipeline.log()}")


def _unique(at: str, verdict: Verdict) -> None:
    """At every moment no engine sees a message twice."""
    for name, table, id in _tables(at):
        for engine, (rows, ids) in counts_of(table, id).items():
            verdict.expect(rows == ids, f"{engine} saw {rows} rows of {ids} messages in {name}")


def _tables(at: str) -> Iterator[tuple[str, Any, str]]:
    """The Delta tables that there are: name, place, and the column that says which message a row is of."""
    lake, table = Lake(below(at, LAKE)), alone(open_place(below(at, TABLE)))
    if lake.state().version >= 0:
        yield LAKE, lake.messages.place, "id"
    if table is not None:
        yield TABLE, table.parts[0].place, "message_id"


async def _judge(broker: holdfast.Broker, pipeline: LakePipeline, count: int, bad: int, verdict: Verdict) -> None:
    """Every message once in its table, all of them in the lake, the unreadable ones dead."""
    import polars
    import pyarrow.parquet as pq

    at = open_place(below(pipeline.place, TABLE))
    rows = polars.read_delta(at.shown, storage_options=at.storage)
    _numbers(Counter(rows["n"].to_list()), list(range(count)), verdict)
    verdict.duplicate_completions += rows.height - rows["message_id"].n_unique()
    files = open_place(below(pipeline.place, PARQUET))
    names = [name for name in files.names("") if parquet.is_data(name)]
    found = Counter(n for name in names for n in pq.read_table(files.source(name), partitioning=None)["n"].to_pylist())
    _numbers(found, list(range(0, count, 10)), verdict)
    stats = await broker.store.stats(ORDERS)
    verdict.attempted = verdict.acknowledged = count + bad + -(-count // 10)
    verdict.completed, verdict.dead = stats.completed + (await broker.store.stats(PARCELS)).completed, stats.dead
    verdict.unfinished = stats.pending + stats.processing + stats.retry
    verdict.expect(verdict.dead == bad, f"{verdict.dead} dead letters of {bad} messages that cannot be read")
    lake = counts(Lake(below(pipeline.place, LAKE)))
    wanted = dict.fromkeys(lake, (count + bad, count + bad))
    verdict.expect(lake == wanted, f"the lake has {lake} and not {count + bad} messages")
    for name, place, id in _tables(pipeline.place):
        verdict.notes[f"rows in the {name}"] = counts_of(place, id)["polars"][0]
    verdict.notes["rows in parquet"] = found.total()


def _numbers(found: Counter[int], wanted: list[int], verdict: Verdict) -> None:
    missing = [number for number in wanted if number not in found]
    twice = [number for number, times in found.items() if times > 1]
    verdict.lost += len(missing)
    verdict.duplicate_completions += len(twice)
    verdict.unexpected += len(found.keys() - set(wanted))
    for name, numbers in (("lost", missing), ("duplicate_completions", twice)):
        if numbers:
            verdict.examples.setdefault(name, []).extend(map(str, numbers[:EXAMPLES]))


def _maintained(pipeline: LakePipeline, verdict: Verdict) -> None:
    """Two compactions with vacuum at once for each table changed no count, of any engine."""
    found = msgspec.json.decode(pipeline.told.read_bytes()) if pipeline.told.exists() else {}
    before, after = found.get("before", {}), found.get("after", {})
    verdict.expect(bool(before) and before == after, f"the counts changed from {before} to {after}")
    for name, engines in before.items():
        verdict.expect(len(set(map(tuple, engines.values()))) == 1, f"engines do not agree on {name}: {engines}")
    verdict.expect(found.get("swept", 0) > 0, f"nothing was deleted, so nothing was merged before: {found}")
    verdict.notes |= {name: found.get(name, 0) for name in ("merged", "into", "swept", "conflicts")}


def _retired(at: str, verdict: Verdict) -> None:
    """Two retentions at once that drop every day: each row goes once, for every engine."""
    rows = Lake(below(at, LAKE)).state().rows
    tomorrow = (datetime.now(UTC).date() + timedelta(days=1)).isoformat()
    dropped: list[int] = []

    def drop() -> None:
        try:
            dropped.append(drop_before(Lake(below(at, LAKE)), tomorrow))
        except LakeConflict:
            dropped.append(0)

    threads = [threading.Thread(target=drop) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    left = set(counts(Lake(below(at, LAKE))).values())
    verdict.expect(sum(dropped) == rows and left == {(0, 0)}, f"dropped {dropped} of {rows} rows, left {left}")
