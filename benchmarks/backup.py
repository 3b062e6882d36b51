"""How fast a store is backed up and restored, beside a plain copy of the same bytes.

python -m benchmarks.backup fill URL N              messages in all states
python -m benchmarks.backup measure URL FRESH_URL   backup, backup again, restore into the other; both must be alike
python -m benchmarks.backup chain URL URL …         moved from one to the next; each must hold what the first held
python -m benchmarks.backup servers N [STORE …]     on servers of its own: file → postgres → s3 → nats → file, then each
                                                    of them, or those given, to a folder and back
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TypeAlias, get_args

import msgspec
import psycopg

import holdfast
from holdfast.bench import raw
from holdfast.stores.base import PAGE_ROWS
from holdfast.stores.opening import locate
from holdfast.stores.records import Settlement, View
from tests.servers import nats, postgres, s3

Contents: TypeAlias = dict[str, tuple[int, str]]
QUEUE = "jobs"
_BATCH = 1000
_BODY_BYTES = 135  # 200 bytes of JSON, more or less, and nothing to compress


def _values(count: int) -> list[dict[str, str]]:
    body = base64.b64encode(os.urandom(_BODY_BYTES * count)).decode()
    size = len(body) // count
    return [{"body": body[at * size : (at + 1) * size]} for at in range(count)]


async def fill(url: str, count: int) -> None:
    """Half of them wait, a tenth each is delayed and retries, a quarter is completed, a twentieth dead."""
    async with holdfast.connect(url) as broker:
        queue = await broker.queue(QUEUE, retry=holdfast.Fixed(86400), max_attempts=5, lease=600)
        endings = {"retry": count // 10, "dead": count // 20, "completed": count // 4}
        for _ in range(count * 9 // 10 // _BATCH):
            await queue.enqueue_many(_values(_BATCH))
        for _ in range(count // 10 // _BATCH):
            await queue.enqueue_many(_values(_BATCH), delay=86400)
        for ending, wanted in endings.items():
            while wanted > 0:
                taken = await queue.dequeue_many(min(_BATCH, wanted))
                wanted -= len(taken)
                if ending == "completed":
                    await queue.complete_many(taken, [{"ok": True}] * len(taken))
                elif ending == "retry":
                    await queue.fail_many(taken, "again")
                else:
                    settled = [Settlement(one.id, one.token, "dead", error="no") for one in taken]
                    await broker.store.settle(QUEUE, settled)
        _say(await queue.stats())


async def measure(url: str, fresh: str) -> None:
    folder = Path(tempfile.mkdtemp(prefix="holdfast-backup-", dir=os.environ.get("TMPDIR", "/tmp")))
    try:
        target = folder / "target"
        began = time.perf_counter()
        first = await holdfast.backup(url, target)
        backed_up = time.perf_counter() - began
        began = time.perf_counter()
        second = await holdfast.backup(url, target)
        again = time.perf_counter() - began
        began = time.perf_counter()
        restored = await holdfast.restore(target, fresh)
        back = time.perf_counter() - began
        began = time.perf_counter()
        size = await asyncio.to_thread(_copied, target, folder / "copy")
        copied = time.perf_counter() - began
        rows = first.messages
        _say(
            f"backup         {rows:>9,} messages {backed_up:6.1f} s {rows / backed_up:>9,.0f} a second, "
            f"{first.bytes:,} bytes"
        )
        _say(f"backup again   {second.new_files:>9,} new files {again:6.1f} s, {second.new_bytes:,} bytes")
        _say(f"restore        {restored.messages:>9,} messages {back:6.1f} s {rows / back:>9,.0f} a second")
        _say(f"plain copy of the backup's {size:,} bytes, synced: {copied:.2f} s")
        if locate(url).scheme == "file":
            began = time.perf_counter()
            size = await asyncio.to_thread(_copied, Path(locate(url).place), folder / "store")
            _say(f"plain copy of the folder's {size:,} bytes, synced: {time.perf_counter() - began:.2f} s")
        was, now = await contents(url), await contents(fresh)
        _say(_table(was))
        if was != now:
            sys.exit(f"the restored store is another:\n{_table(now)}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def chain(first: str, *urls: str) -> None:
    was = await contents(first)
    _say(f"{first}\n{_table(was)}")
    for url, to in zip((first, *urls), urls, strict=False):
        began = time.perf_counter()
        moved = await holdfast.move(url, to)
        took = time.perf_counter() - began
        _say(f"{to}: {moved.messages:,} messages moved, {took:.1f} s, {moved.messages / took:,.0f} a second")
        now = await contents(to)
        if now != was:
            sys.exit(f"this store is another:\n{_table(now)}")
    _say("every store held the same ids, values, states, attempts, errors and results")


async def servers(count: int, stores: list[str]) -> None:
    """The whole comparison, on one machine."""
    with s3.Server() as bucket, nats.Server() as streams, postgres.Server() as database, raw.scratch() as folder:
        with psycopg.connect(database.url(), autocommit=True) as admin:
            for name in ("one", "two"):
                admin.execute(f"CREATE DATABASE {name}")
        pairs = {
            "file": (f"file://{folder}/one", f"file://{folder}/two"),
            "postgres": (database.url("one"), database.url("two")),
            "s3": (bucket.url("one"), bucket.url("two")),
            "nats": (f"{streams.url}?prefix=one", f"{streams.url}?prefix=two"),
        }
        await fill(pairs["file"][0], count)
        await chain(*(one for one, _ in pairs.values()), f"file://{folder}/last")
        for store in stores or pairs:
            _say(store)
            await measure(*pairs[store])


async def contents(url: str) -> Contents:
    """Of each view how many messages, and a sum of all that must not change, in whatever order they come."""
    found: Contents = {}
    async with holdfast.connect(url) as broker:
        for view in get_args(View):
            count, total, after = 0, 0, None
            while page := await broker.store.scan(QUEUE, view, after=after, limit=PAGE_ROWS):
                after = page[-1].id
                count += len(page)
                for each in page:
                    kept = (each.id, each.payload, each.status, each.attempts, each.priority, each.error, each.result)
                    total += int.from_bytes(hashlib.blake2b(msgspec.msgpack.encode(kept), digest_size=16).digest())
            found[view] = count, f"{total % (1 << 128):032x}"
        stats = await broker.store.stats(QUEUE)
    return found | {"completed and failed": (stats.completed + stats.failed, f"{stats.completed} {stats.failed}")}


def _table(found: Contents) -> str:
    return "\n".join(f"  {view:<22} {count:>10,}  {total}" for view, (count, total) in found.items())


def _say(text: object) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _copied(source: Path, target: Path) -> int:
    """Bytes that were copied, each file synced as a backup's are."""
    size = 0
    for directory, _, names in os.walk(source):
        into = target / Path(directory).relative_to(source)
        into.mkdir(parents=True, exist_ok=True)
        for name in names:
            data = Path(directory, name).read_bytes()
            with open(into / name, "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            size += len(data)
    return size


if __name__ == "__main__":
    what, url, *others = sys.argv[1:]
    if what == "fill":
        asyncio.run(fill(url, int(others[0])))
    elif what == "measure":
        asyncio.run(measure(url, others[0]))
    elif what == "chain":
        asyncio.run(chain(url, *others))
    else:
        asyncio.run(servers(int(url), others))
