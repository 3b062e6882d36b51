"""How fast a store is backed up and restored, beside a plain copy of the same bytes.

python -m benchmarks.backup fill URL N              messages in all states
python -m benchmarks.backup measure URL FRESH_URL   backup, backup again, restore into the other; both must be alike
"""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import holdfast
from holdfast.stores.opening import locate
from holdfast.stores.records import Settlement

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
        async with holdfast.connect(url) as one, holdfast.connect(fresh) as two:
            was, now = await one.store.stats(QUEUE), await two.store.stats(QUEUE)
        _say(f"{was}\n{now}")
        counts = ("total", "pending", "delayed", "retry", "dead", "archived", "completed", "failed")
        assert [getattr(was, name) for name in counts] == [getattr(now, name) for name in counts]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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
    what, url, other = sys.argv[1:]
    asyncio.run(fill(url, int(other)) if what == "fill" else measure(url, other))
