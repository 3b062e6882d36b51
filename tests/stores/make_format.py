"""Makes a small store of the present format: `python -m tests.stores.make_format [slate]`.

It writes `tests/formats/v<number>/` or `tests/formats/slate-v<number>/`: `store/`, a folder or a SlateDB database with
messages in every state, and `expected.json`, what must be found in it. A format that was released is never made again;
the tests open what it wrote.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import msgspec

from holdfast.config import QueueOptions, StoreOptions
from holdfast.errors import HoldfastError
from holdfast.retry import Fixed
from holdfast.stores import formats
from holdfast.stores.log import open_folder, open_slate, slatedb
from holdfast.stores.log.store import LogStore
from holdfast.stores.records import Claimed, Envelope, Settlement, Stats, Stored
from holdfast.testing.clock import ManualClock

FORMATS = Path(__file__).parent.parent / "formats"
T0 = 1_700_000_000.0
OPTIONS = QueueOptions(max_attempts=4, retry=Fixed(5.0), archive_days=10_000.0, dedup_window=1000.0)
QUIET = QueueOptions(dead_letter=False, archive=False, lease=7.5)


class Died(HoldfastError):
    """The process that makes the store dies in the middle of a flush."""


class Expected(msgspec.Struct):
    """What is in the store at the time `now`."""

    now: float
    ids: dict[str, list[str]]  # by status
    records: list[Stored]  # some of each
    held: list[tuple[str, str]]  # (id, token) of what is being processed
    done: tuple[str, str]  # of a completion in the archive
    dedup: tuple[str, str]  # a key that is remembered, and its id
    replayed: str  # was copied out of the archive, and must not be again
    stats: Stats


class Maker:
    """Carries messages into every state there is."""

    def __init__(self, store: LogStore, clock: ManualClock) -> None:
        self.store = store
        self.clock = clock
        self.found: dict[str, list[str]] = {}
        self.held: list[tuple[str, str]] = []

    async def claim(self, count: int, lease: float = 5000.0, queue: str = "jobs") -> list[Claimed]:
        messages = (await self.store.claim(queue, count, lease, worker="maker")).messages
        assert len(messages) == count
        return messages

    async def settle(self, held: list[Claimed], action: Any, queue: str = "jobs", **said: Any) -> None:
        answers = await self.store.settle(queue, [Settlement(each.id, each.token, action, **said) for each in held])
        assert set(answers) == {"ok"}

    async def end(self, status: str, count: int, action: Any, **said: Any) -> list[Claimed]:
        """Messages that are sent, claimed and settled."""
        await self.store.append("jobs", [Envelope(b"%d" % n, headers={"n": str(n)}) for n in range(count)])
        held = await self.claim(count)
        await self.settle(held, action, worker="w", **said)
        self.found.setdefault(status, []).extend(each.id for each in held)
        return held

    async def flush(self) -> None:
        await self.store.discard("jobs", "archive", [])

    async def written(self) -> tuple[str, str]:
        """What lies in files and blocks: archive, dead letters, retries that left the head."""
        done = await self.end("completed", 3, "complete", result=b"result")
        await self.end("completed", 17, "complete")
        await self.end("dead", 17, "dead", error="why")
        (id,) = await self.store.append("jobs", [Envelope(b"c", delay=50.0)])
        assert await self.store.cancel("jobs", id)
        self.found["failed"] = [id]
        await self.flush()
        await self.end("retry", 310, "retry", delay=7200.0, error="later")
        await self.flush()
        return done[0].id, done[0].token

    async def frozen(self) -> None:
        """What a flush was writing when its process died, and what gathered since."""
        await self.end("completed", 2, "complete", result=b"large" * 1000)
        await self.end("dead", 1, "dead", error="why")
        try:
            await self.store.maintain("jobs")
        except Died:
            pass
        await self.end("completed", 2, "complete", result=b"small")
        await self.end("retry", 2, "retry", delay=3600.0, error="soon")
        await self.end("delayed", 1, "release", delay=3600.0)

    async def alive(self) -> str:
        """What waits, is held, or was held once; the id behind the dedup key."""
        held = await self.store.append("jobs", [Envelope(b"held", max_attempts=9) for _ in range(3)])
        await self.claim(3, 1.0)
        self.clock.advance(2.0)
        again = await self.claim(2)
        self.held = [(each.id, each.token) for each in again]
        self.found["processing"] = [each.id for each in again]
        self.found["pending"] = [each for each in held if each not in self.found["processing"]]
        kinds = ("application/json", "text/plain")
        sent = [Envelope(b"%d" % n, kinds[n % 2], {"n": str(n)} if n % 3 else None, priority=9) for n in range(20)]
        self.found["pending"] += await self.store.append("jobs", sent)
        self.found["delayed"] += await self.store.append("jobs", [Envelope(b"x", delay=3600.0, priority=200)] * 2)
        (id,) = await self.store.append("jobs", [Envelope(b"once", dedup_key="key")])
        self.found["pending"].append(id)
        (letter,) = await self.claim(1, queue="jobs/dead")
        assert letter.id == self.found["dead"][0]
        return id

    async def quiet(self) -> None:
        """A paused queue with other options."""
        await self.store.create_queue("quiet", QUIET)
        await self.store.append("quiet", [Envelope(b"hush")])
        await self.store.pause("quiet", True)

    async def expected(self, done: tuple[str, str], dedup: str, replayed: str) -> Expected:
        records: list[Stored] = []
        for status, ids in self.found.items():
            ids.sort()
            stored = [each for each in await self.store.get("jobs", ids) if each is not None]
            assert [(each.id, each.status) for each in stored] == [(id, status) for id in ids]
            records += stored[:2] + stored[-2:]
        stats = await self.store.stats("jobs")
        return Expected(self.clock(), self.found, records, self.held, done, ("key", dedup), replayed, stats)


async def open_kept(name: str, folder: Path, **how: Any) -> LogStore:
    """A store as its format's name says."""
    if name.startswith("slate-"):
        return await open_slate(slatedb.local(folder), StoreOptions(), **how)
    return await open_folder(folder, StoreOptions(), **how)


async def make(name: str, folder: Path) -> Expected:
    """Fill the folder, and say what is in it."""
    clock = ManualClock(T0)
    dying = False

    async def steps(name: str) -> None:
        if dying and name == "flush.frozen":
            raise Died(name)

    store = await open_kept(name, folder, clock=clock, steps=steps)
    maker = Maker(store, clock)
    await store.create_queue("jobs", OPTIONS)
    await maker.quiet()
    done = await maker.written()
    replayed = maker.found["completed"][1]
    assert await store.replay("jobs", "archive", [replayed]) == 1
    (copy,) = await maker.claim(1)
    await maker.settle([copy], "complete", keep=False)
    dying = True
    await maker.frozen()
    dedup = await maker.alive()
    expected = await maker.expected(done, dedup, replayed)
    await store.close()
    return expected


def main() -> None:
    target = FORMATS / f"{'slate-' if 'slate' in sys.argv else ''}v{formats.LOG}"
    if target.exists():
        sys.exit(f"{target} is there already; a format that was released is not made again")
    target.mkdir(parents=True)
    expected = asyncio.run(make(target.name, target / "store"))
    (target / "expected.json").write_bytes(msgspec.json.format(msgspec.json.encode(expected), indent=1) + b"\n")
    size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    print(f"{target}: {sum(map(len, expected.ids.values()))} messages, {size // 1024} KiB")


if __name__ == "__main__":
    main()
