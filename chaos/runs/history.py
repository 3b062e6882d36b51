"""R15: processes do every verb at random and are killed and stopped; the history is judged from the contract alone."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

import holdfast
from tests.servers import azure, nats, postgres, s3
from tests.servers.proxy import Faults, Proxy

from ..histories import quiet
from ..histories.calls import Hurt, Log, now, read
from ..histories.child import QUEUES, SHARED, STREAMED, Spec
from ..histories.judge import judged
from ..histories.quiet import Ending
from ..histories.streams import CONSUMER
from ..settings import Settings
from ..verdict import DECIDING, Verdict

STORES = ("file", "postgres", "s3", "nats", "slatedb", "azure")
_ATTEMPTS = 4
_LEASE = 2.0  # seconds at scale 1: of the queues; every call says its own
_WINDOW = 15.0  # seconds: the queues' dedup_window
_BEGINNING = 300.0  # seconds: on a machine that others keep busy too
_BEGUN = 1000  # bytes of calls after which a process is at work
_LONGEST = 16.0  # seconds at scale 1 in which every lease, delay and retry must be over
_READING = 300.0  # seconds for a call in the quiet: hundreds of archive files are read one by one, and nobody judges it
_FOREIGN = 2.2  # seconds: on a bucket another's lease is over two seconds after its end
_SLOW_LISTS = Faults(slow_lists=0.05, delay=2.0)


_QUIETLY = {**os.environ, "HOLDFAST_LOG_LEVEL": "critical"}


class Place(msgspec.Struct, frozen=True):
    """A store to be hurt. The processes go `through` another URL to the same place."""

    store: str
    url: str
    through: str
    scale: float = 1.0  # leases and delays are so many times as long
    processes: int = 4
    threads: int = 2
    streams: bool = False
    settling: float = 0.0  # seconds after its end in which a lease may still be in the way of others
    proxy: Proxy | None = None


async def history(settings: Settings) -> Verdict:
    """On one store, or on all of them, one after the other."""
    if settings.store != "all":
        return await asyncio.to_thread(on_store, settings.store, settings)
    verdicts = [await asyncio.to_thread(on_store, store, settings) for store in STORES]
    four = msgspec.structs.replace(settings, shards=4)
    verdicts.append(await asyncio.to_thread(on_store, "s3", four))
    return _merged(verdicts)


def on_store(store: str, settings: Settings) -> Verdict:
    """One history on a fresh store, with the servers it needs."""
    kept = settings.folder / "history" if settings.folder is not None else None
    root = Path(tempfile.mkdtemp(prefix="holdfast-chaos-")) if kept is None else kept
    histories = root / f"{store}-{settings.shards}-{settings.seed}"
    histories.mkdir(parents=True)
    logging.getLogger("holdfast").setLevel("CRITICAL")  # thousands of leases expire here
    try:
        with opened(store, root, settings) as place:
            _Run(place, settings, histories).play()
            verdict = judged(histories)
            if place.proxy is not None:
                verdict.notes["slow lists"] = place.proxy.counts.faults["slow list"]
        verdict.notes["seed"] = settings.seed
        return verdict
    finally:
        if kept is None:
            shutil.rmtree(root, ignore_errors=True)


@contextmanager
def opened(store: str, root: Path, settings: Settings) -> Iterator[Place]:
    """The servers of a store, as long as the context lasts."""
    if store == "file":
        url = f"file://{root / 'store'}"
        yield Place(store, url, url, streams=True)
    elif store == "slatedb":  # one process at a time owns it
        url = f"slatedb+file://{root / 'store'}"
        yield Place(store, url, url, processes=1, threads=8)
    elif store == "postgres":
        with postgres.Server() as server:
            yield Place(store, server.url(), server.url(), streams=True)
    elif store == "nats":
        with nats.Server() as queue_server:  # what was on its way to a dead process comes back after the queue's lease
            yield Place(store, queue_server.url, queue_server.url, settling=_LEASE + 1.0)
    elif store in ("s3", "azure"):
        made: s3.Server | azure.Server = s3.Server() if store == "s3" else azure.Server()
        with made as bucket, Proxy(bucket.port, _SLOW_LISTS, seed=settings.seed) as proxy:
            yield _bucket(store, bucket, proxy, settings)
    else:
        raise SystemExit(f"there is no history on {store!r}; there are {', '.join(STORES)}")


def _bucket(store: str, bucket: s3.Server | azure.Server, proxy: Proxy, settings: Settings) -> Place:
    return Place(
        store, bucket.url("history"), bucket.url("history", endpoint=proxy.endpoint), proxy=proxy, settling=_FOREIGN,
        scale=3.0 if settings.strict else 1.0, streams=True,
    )  # fmt: skip


class _Run:
    """One history: processes at work, signals, and the quiet at the end."""

    def __init__(self, place: Place, settings: Settings, folder: Path) -> None:
        self._place = place
        self._settings = settings
        self._folder = folder
        self._chance = random.Random(settings.seed)
        self._log = Log(folder / "conductor.calls")
        self._spawned = 0
        self._told = 0.0

    def play(self) -> None:
        Log(self._folder / SHARED)
        self._create()
        processes = [self._spawn() for _ in range(self._place.processes)]
        try:
            self._wait_for(processes)
            self._hurt(processes)
        finally:
            for name, process in processes:
                self._kill(name, process)
        self._end()

    def _create(self) -> None:
        scale = self._place.scale
        with holdfast.sync.connect(self._place.url) as broker:
            for name, options in QUEUES.items():
                more: dict[str, Any] = {**options, "shards": self._settings.shards}
                broker.create_queue(
                    name, max_attempts=_ATTEMPTS, retry=holdfast.Fixed(0.3 * scale), dedup_window=_WINDOW,
                    lease=_LEASE * scale, **more,
                )  # fmt: skip

    def _spawn(self) -> tuple[str, subprocess.Popen[bytes]]:
        place, settings = self._place, self._settings
        name, self._spawned = f"p{self._spawned}", self._spawned + 1
        spec = Spec(
            name=name, url=place.through, folder=str(self._folder), seed=settings.seed, threads=place.threads,
            scale=place.scale, rare=min(20.0 * place.scale, settings.seconds), streams=place.streams,
        )  # fmt: skip
        command = [sys.executable, "-m", "chaos.histories.child", msgspec.json.encode(spec).decode()]
        with (self._folder / f"{name}.log").open("wb") as output:
            return name, subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=output, env=_QUIETLY)

    def _wait_for(self, processes: list[tuple[str, subprocess.Popen[bytes]]]) -> None:
        """To hurt those who only begin would show nothing."""
        deadline = now() + _BEGINNING
        while not all(self._is_at_work(name) for name, _ in processes):
            if now() > deadline:
                raise TimeoutError(f"the processes did not begin within {_BEGINNING:.0f} s")
            time.sleep(0.05)

    def _is_at_work(self, name: str) -> bool:
        path = self._folder / f"{name}.calls"
        return path.exists() and path.stat().st_size > _BEGUN

    def _hurt(self, processes: list[tuple[str, subprocess.Popen[bytes]]]) -> None:
        scale, end = self._place.scale, now() + self._settings.seconds
        while (left := end - now()) > 0:
            self._tell(f"{left:.0f} s to go")
            time.sleep(min(left, self._chance.uniform(0.3, 3.0) * scale))
            at = self._chance.randrange(len(processes))
            name, process = processes[at]
            if process.poll() is not None:
                raise RuntimeError(f"{name} ended by itself:\n{self._said_by(name)}")
            if not self._is_at_work(name):
                continue
            if self._chance.random() < 0.65:
                self._kill(name, process)
                processes[at] = self._spawn()
            else:
                self._stop(name, process)

    def _said_by(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text(errors="replace")[-2000:]

    def _kill(self, name: str, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait(10)
        if process.stdin is not None:
            process.stdin.close()
        self._log.write(Hurt(process=name, began=now(), ended=now(), killed=True))

    def _stop(self, name: str, process: subprocess.Popen[bytes]) -> None:
        began = now()
        process.send_signal(signal.SIGSTOP)
        time.sleep(self._chance.uniform(0.5, 3.0) * self._place.scale)
        process.send_signal(signal.SIGCONT)
        self._log.write(Hurt(process=name, began=began, ended=now(), killed=False))

    def _end(self) -> None:
        place = self._place
        if place.streams:
            quiet.release_batches(place.url, STREAMED, CONSUMER, self._log)
        calls, _ = read(self._folder)
        self._tell("draining")
        with holdfast.sync.connect(place.url, operation_timeout=_READING) as broker:
            rest = quiet.settle_down(broker, QUEUES, calls, patience=_LONGEST * place.scale, settling=place.settling)
        ending = Ending(
            store=place.store, scale=place.scale, window=_WINDOW, shards=self._settings.shards, queues=rest,
            dead_letter={name: options.get("dead_letter", True) for name, options in QUEUES.items()},
        )  # fmt: skip
        quiet.write(self._folder, ending)

    def _tell(self, text: str) -> None:
        """A line now and then: long runs must not look dead."""
        if not self._settings.quiet and now() > self._told + 10.0:
            self._told = now()
            sys.stderr.write(f"history on {self._place.store}: {text}\n")
            sys.stderr.flush()


def _merged(verdicts: list[Verdict]) -> Verdict:
    """One verdict for several stores: counts added up, notes and failures by store."""
    whole = Verdict(run="history")
    counts = ("attempted", "acknowledged", "completed", "dead", "refused", "kills", "effective_kills", *DECIDING)
    for verdict in verdicts:
        for name in counts:
            setattr(whole, name, getattr(whole, name) + getattr(verdict, name))
        whole.failures += [f"{verdict.run}: {failure}" for failure in verdict.failures]
        whole.notes |= {f"{verdict.run}, {name}": value for name, value in verdict.notes.items()}
    return whole
