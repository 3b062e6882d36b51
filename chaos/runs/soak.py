"""Half an hour at half of the possible rate, on PostgreSQL beside a session that is idle in a transaction."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import psycopg

from tests.servers import nats, postgres, s3

from ..settings import Settings
from ..soak.judging import Sample, failures, finding
from ..soak.machine import Yardstick
from ..verdict import Verdict

STORES = ("file", "postgres", "nats", "s3", "slatedb")
_PATIENCE_SECONDS = 120.0  # for opening, finding out and the end


async def soak(settings: Settings) -> Verdict:
    verdict = Verdict(run="soak")
    for store in STORES if settings.store == "all" else [settings.store]:
        with _place(store) as url:
            samples = await _samples(url, settings.seconds)
        _keep(samples, settings.folder, store)
        found = finding(samples)
        verdict.failures += [f"{store}: {failure}" for failure in failures(found, samples)]
        verdict.attempted += samples[-1].sent
        verdict.acknowledged += samples[-1].sent
        verdict.completed += samples[-1].done
        verdict.notes[store] = (
            f"{samples[-1].done:,} messages in {samples[-1].at:.0f} s; after the warm-up, for {found.judged:.0f} s: "
            f"memory {found.memory:+.2f} MB a minute ({found.megabytes:.0f} MB), handles {found.handles:+d}, "
            f"claim p99 {found.first_p99 * 1e3:.1f} ms at first, {found.last_p99 * 1e3:.1f} ms in the end"
            + (f" (the machine was {found.busier:.1f} times as busy then)" if found.busier > 1 else "")
        )
    return verdict


def _keep(samples: Sequence[Sample], folder: Path | None, store: str) -> None:
    """To be judged again, or looked at."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"soak-{store}.jsonl").write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in samples))


async def _samples(url: str, seconds: float) -> list[Sample]:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "chaos.soak.child", url, str(seconds), stdout=asyncio.subprocess.PIPE
    )
    yardstick = Yardstick()
    measuring = asyncio.create_task(yardstick.measure())
    try:
        samples = await asyncio.wait_for(_heard(child, yardstick), seconds + _PATIENCE_SECONDS)
    finally:
        measuring.cancel()
        if child.returncode is None:
            child.kill()
    if child.returncode:
        raise RuntimeError(f"the process under load ended with {child.returncode}")
    return samples


async def _heard(child: asyncio.subprocess.Process, yardstick: Yardstick) -> list[Sample]:
    assert child.stdout is not None  # it was asked for
    samples = []
    async for line in child.stdout:
        sample = msgspec.json.decode(line, type=Sample)
        samples.append(msgspec.structs.replace(sample, machine=yardstick.p99()))
    await child.wait()
    return samples


@contextmanager
def _place(store: str) -> Iterator[str]:
    match store:
        case "postgres":
            with postgres.Server() as server, psycopg.connect(server.url()) as idle:
                idle.execute("SELECT count(*) FROM pg_class")  # its snapshot keeps dead rows from being removed
                yield server.url()
        case "nats":
            with nats.Server() as broker:
                yield broker.url
        case "s3" | "slatedb":
            with s3.Server() as bucket:
                yield ("slatedb+" if store == "slatedb" else "") + bucket.url("soak")
        case _:
            with tempfile.TemporaryDirectory(prefix="holdfast-soak-") as folder:
                yield f"file://{folder}/store"
