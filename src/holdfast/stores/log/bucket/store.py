"""The log engine as a store on a space with a repeat window: shards, and looks that become rarer when idle."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from ....config import QueueOptions, StoreOptions
from ....errors import Damaged
from ...base import DEAD, Check, QueueInfo, Recovered
from ...capabilities import Capabilities
from ...living_keys import ALIVE
from ...records import Answer, Change, Claims, Dedup, Enqueued, Envelope, Settlement, Stats, Usage
from .. import lapsing, names, queues
from ..head.state import NEVER
from ..partition import Log
from ..queue_view import Finder
from ..space import ORPHAN_SECONDS, Reading, Transaction, Unclear
from ..store import LogStore
from ..topics import work_topic
from . import sharding
from .idle import Polling
from .living_keys import Holders, LivingKeys
from .recover import Recovery, known_among
from .repeat_window import Window
from .sharding import Round
from .space import GRACE, CloudSpace
from .view import bucket_view

_FETCHING_MOST = 4
_FORGETS_S = 600.0  # between two looks for keys whose messages have ended: each is up to 64 requests
_PREFETCH = 90  # messages a worker claims beyond the running ones: a claim is dear


class LateStore(LogStore):
    """See `stores/base.py` for the promises."""

    capabilities = Capabilities(prefetch=_PREFETCH, keeps_values=True)

    def __init__(
        self, space: CloudSpace, options: StoreOptions, *, steps: Callable[[str], Awaitable[None]] | None = None
    ) -> None:
        super().__init__(space, options, steps=steps)
        self._bucket = space
        self._appended: Counter[str] = Counter()  # messages, by queue
        self._settled: Counter[str] = Counter()
        self._pollings: dict[str, Polling] = {}
        self._rounds: dict[str, Round] = {}
        self._fetching: set[asyncio.Future[Any]] = set()
        self._looks: dict[str, tuple[float, asyncio.Future[list[sharding.Busy]]]] = {}  # at all shards, and when begun
        self._passed: dict[str, float] = {}  # by which epoch messages came back, by queue
        self._forgot: dict[str, float] = {}  # when keys of ended messages were looked for, by queue
        self.home = random.getrandbits(30)  # a producer stays on one shard

    def _window_of(self, queue: str) -> Window:
        window = self._log(queue).window
        assert isinstance(window, Window)
        return window

    # Shards.

    async def _shards(self, queue: str) -> int:
        if queue.endswith(DEAD):
            return 1
        known = self._log(queue).committer.shards
        if not known:
            await self._space.read(self._log(queue).committer.look, deadline=self._timeout)
        return known or self._log(queue).committer.shards

    async def _logs_of(self, queue: str) -> list[Log]:
        return [self._log(queues.shard(queue, number)) for number in range(await self._shards(queue))]

    def _finder(self, queue: str) -> Finder:
        queue = queues.address(queue).queue + (DEAD if queue.endswith(DEAD) else "")
        if queue.endswith(DEAD):
            return super()._finder(queue)
        count = self._log(queue).committer.shards or 1
        lives = [self._log(queues.shard(queue, number)).committer for number in range(count)]
        return Finder(lives, self._log(queue + DEAD).committer, self._cache)

    async def _found(self, queue: str, ids: Sequence[str]) -> list[bool]:
        """A shard asks, too: its messages are messages of the queue."""
        return await super()._found(queues.address(queue).queue, ids)

    async def append(self, queue: str, messages: Sequence[Envelope]) -> list[str]:
        made = await super().append(queues.shard(queue, self.home % await self._shards(queue)), messages)
        self._appended[queue] += len(made)
        return made

    async def append_once(
        self, queue: str, messages: Sequence[Envelope], dedup: Dedup = "window", *, replace: bool = False
    ) -> list[Enqueued]:
        shard = queues.shard(queue, self.home % await self._shards(queue))
        if dedup == "window":
            made = await super().append_once(shard, messages)
        else:
            self._check(messages)
            made = [await self._living_keys(queue, shard).append(messages[0], dedup, replace=replace)]
        self._appended[queue] += sum(each.new for each in made)
        return made

    def _living_keys(self, queue: str, shard: str) -> LivingKeys:
        async def is_known(id: str) -> bool:
            return (await self.get(queue, [id]))[0] is not None

        async def set_aside() -> None:
            for log in await self._logs_of(queue):
                await self._window_of(log.address.text).quarantine.tend()

        alive, change = partial(self._alive, queue), partial(self.change, queue)
        holders = Holders(alive, is_known, change, set_aside, self._window_of(shard).late.unlist)
        return LivingKeys(self._bucket, queue, shard, self._ids, holders, timeout=self._timeout)

    async def _alive(self, queue: str, wanted: Sequence[str]) -> dict[str, str]:
        """The states of those that have not ended."""
        plain = [names.plain(id) for id in wanted]

        def look(finder: Finder, view: Reading) -> dict[str, str]:
            found: dict[str, str] = {}
            for live in finder.both(view)[0]:
                some = live.find_all(plain) if len(plain) > 1 else {id: live.find(id) for id in plain}
                found |= {names.dashed(id): one.state.status for id, one in some.items() if one is not None}
            return {id: status for id, status in found.items() if status in ALIVE}

        return await self._look(queue, look)

    def single_append(self, queue: str) -> None:
        """Which shard, and what an unclear answer means, is a matter of the call."""

    # Costs.

    async def stats(self, queue: str) -> Stats:
        return replace(await super().stats(queue), usage=self._usage(queue))

    def _usage(self, queue: str) -> Usage:
        counts = self._bucket.tally.read(queues.address(queue).queue)
        sent, received = counts.pop("bytes_sent"), counts.pop("bytes_received")
        return Usage(counts, sent, received, max(self._appended[queue], self._settled[queue]))

    async def extend(self, queue: str, held: Sequence[tuple[str, str]], seconds: float) -> list[float | None]:
        ends: list[float | None] = [None] * len(held)

        async def part(shard: int, places: list[int]) -> None:
            some = await super(LateStore, self).extend(
                queues.shard(queue, shard), [held[place] for place in places], seconds
            )
            for place, end in zip(places, some, strict=True):
                ends[place] = end

        count = await self._shards(queue)
        await asyncio.gather(*(part(*each) for each in sharding.grouped(held, lambda lease: lease[1], count).items()))
        return ends

    def extend_from_thread(
        self, queue: str, held: Sequence[tuple[str, str]], seconds: float
    ) -> list[float | None] | None:
        ends: list[float | None] = [None] * len(held)
        count = 1 if queue.endswith(DEAD) else self._log(queue).committer.shards or 1
        for shard, places in sharding.grouped(held, lambda lease: lease[1], count).items():
            some = super().extend_from_thread(queues.shard(queue, shard), [held[place] for place in places], seconds)
            for place, end in zip(places, some or (), strict=True):
                ends[place] = end
        return ends

    async def settle(self, queue: str, settlements: Sequence[Settlement]) -> list[Answer]:
        answers: list[Answer] = ["unknown"] * len(settlements)

        async def part(shard: int, places: list[int]) -> None:
            some = await super(LateStore, self).settle(
                queues.shard(queue, shard), [settlements[place] for place in places]
            )
            for place, answer in zip(places, some, strict=True):
                answers[place] = answer

        by_shard = sharding.grouped(settlements, lambda each: each.token, await self._shards(queue))
        await asyncio.gather(*(part(*each) for each in by_shard.items()))
        self._settled[queue] += answers.count("ok")
        return answers

    # Options.

    async def create_queue(self, name: str, options: QueueOptions) -> QueueInfo:
        """A bucket has no step that writes the options and the heads: these follow, and then the options say so."""

        def create(tx: Transaction) -> queues.Config:
            queues.refuse_strays(tx, name)
            return queues.create(tx, name, options, store_id=self._space.store_id, heads=False)

        until = time.monotonic() + self._timeout
        info = await self._created(name, create)
        await self._give_heads(name, until)
        return info

    async def _give_heads(self, name: str, until: float) -> None:
        give = partial(queues.give_heads, queue=name, store_id=self._space.store_id)
        await self._space.transact(give, deadline=_left(until))

    async def configure(self, name: str, options: QueueOptions) -> QueueInfo:
        until = time.monotonic() + self._timeout
        info = await super().configure(name, options)
        await self._options_changed(name, until)
        return info

    async def pause(self, name: str, paused: bool) -> None:
        until = time.monotonic() + self._timeout
        await super().pause(name, paused)
        await self._options_changed(name, until)

    async def _options_changed(self, queue: str, until: float | None = None) -> None:
        """Let every list that looks for messages show that the options have changed; in the time of the call."""

        def touch(tx: Transaction, key: str) -> None:
            tx.get(key)
            tx.put(key, os.urandom(8))

        until = time.monotonic() + self._timeout if until is None else until
        config = await self._space.read(lambda view: queues.read_current(view, queue), deadline=_left(until))
        for number in range(config.options.shards):  # also those that this process has never looked at
            root = queues.address(queues.shard(queue, number)).root(config)
            await self._space.transact(partial(touch, key=root + names.HINT), deadline=_left(until))

    async def change(self, queue: str, id: str, change: Change) -> bool:
        return await self._in_time(super().change(queue, id, change))

    async def cancel(self, queue: str, id: str, *, running: bool = False) -> bool:
        return await self._in_time(super().cancel(queue, id, running=running))

    async def _in_time(self, call: Awaitable[bool]) -> bool:
        """One that takes several steps, each of which may take as long."""
        try:
            async with asyncio.timeout(self._timeout + GRACE):  # a step alone says more
                return await call
        except TimeoutError as error:
            text = f"the bucket did not finish within {self._timeout:g} s; whether it took effect is unknown"
            raise Unclear(text) from error

    # Claims.

    async def claim(
        self, queue: str, limit: int, lease: float, *, wait: float = 0.0, worker: str | None = None
    ) -> Claims:
        """How often others are looked for depends on what was found, not on how often somebody calls."""
        if not wait:
            return await self._claim_now(queue, limit, lease, worker)
        polling, first = self._polling(queue), True
        deadline = time.monotonic() + wait
        while True:
            ticket = self._space.ticket(work_topic(queue))
            left, pause = deadline - time.monotonic(), 0.0 if first and polling.is_active else polling.pause(ticket)
            first = False
            if pause > 0:
                if left <= 0:
                    return Claims([])
                await self._space.watch(work_topic(queue), min(left, pause), since=ticket)
                continue
            claims, next_due = await self._claim_somewhere(queue, limit, lease, worker)
            if claims.messages or claims.expired:
                polling.found()
                return claims
            self._looked_at(queue, ticket, next_due)

    async def _claim_now(self, queue: str, limit: int, lease: float, worker: str | None) -> Claims:
        ticket = self._space.ticket(work_topic(queue))
        claims, next_due = await self._claim_somewhere(queue, limit, lease, worker)
        if queue in self._watched:
            if claims.messages or claims.expired:
                self._polling(queue).found()
            else:
                self._looked_at(queue, ticket, next_due)
        return claims

    def _looked_at(self, queue: str, ticket: int, next_due: float | None) -> None:
        self._polling(queue).looked(ticket, None if next_due is None else max(0.001, next_due - self._space.clock()))

    def _pause(self, queue: str, ticket: int) -> float:
        return self._polling(queue).pause(ticket)

    async def _claim_somewhere(
        self, queue: str, limit: int, lease: float, worker: str | None
    ) -> tuple[Claims, float | None]:
        """From one's own shard while it has messages and no other waits for somebody; else from the others."""
        count = await self._shards(queue)
        self._bring_back_meanwhile(queue)
        if count == 1:
            return await self._claim(queue, limit, lease, worker)
        round = self._rounds.get(queue)
        if round is None or round.count != count:
            round = self._rounds[queue] = Round(count)
        begun, own = time.monotonic(), round.pick()
        claims, soonest = await self._claim(queues.shard(queue, own), limit, lease, worker)
        if claims.messages or claims.expired:
            self._look_round(queue, round)
            return claims, soonest
        for shard in [each for each in round.order(await self._busy(queue, begun)) if each != own]:
            claims, next_due = await self._claim(queues.shard(queue, shard), limit, lease, worker)
            if claims.messages or claims.expired:
                if round.home == own:  # it gives nothing any more: this one is home now
                    round.home = shard
                return claims, next_due
            soonest = min((each for each in (soonest, next_due) if each is not None), default=None)
        return Claims([]), soonest

    def _look_round(self, queue: str, round: Round) -> None:
        """Now and then look at the other shards, meanwhile."""
        shared = self._window_of(queues.shard(queue, round.home)).late.pace.is_shared
        if not round.is_due():
            return
        round.looking()

        async def look() -> None:
            round.seen(await self._busy(queue, time.monotonic()), shared=shared)

        self._meanwhile(look())

    async def _claim(self, queue: str, limit: int, lease: float, worker: str | None) -> tuple[Claims, float | None]:
        claims = await super()._claim(queue, limit, lease, worker)
        self._window_of(queue).quarantine.look()
        if len(claims[0].messages) >= limit:
            self._fetch_next(self._log(queue))
        return claims

    def _fetch_next(self, log: Log) -> None:
        """Have the block at hand that the next claim will most likely take from."""
        key = log.committer.next_block()
        if key is not None and self._cache.get(key) is None and len(self._fetching) < _FETCHING_MOST:
            self._meanwhile(self._space.read(partial(self._load_meanwhile, key=key)))

    def _meanwhile(self, work: Awaitable[Any]) -> None:
        task = asyncio.ensure_future(work)
        self._fetching.add(task)
        task.add_done_callback(self._fetched)

    def _load_meanwhile(self, view: Reading, key: str) -> None:
        bucket_view(view).fetch([key])  # who needs it before it is here does not ask again
        self._cache.load(view, key)

    def _fetched(self, task: asyncio.Future[Any]) -> None:
        self._fetching.discard(task)
        if not task.cancelled():
            task.exception()  # whoever needs the block asks again

    async def close(self) -> None:
        self._bucket.end_soon()  # flushes, and all else that is under way
        if self._fetching:
            await asyncio.wait(self._fetching)
        await super().close()

    async def _busy(self, queue: str, since: float) -> list[sharding.Busy]:
        """The shards with messages, by a look that was begun after an instant: callers that come together share one."""
        begun, looking = self._looks.get(queue, (0.0, None))
        if looking is None or begun < since:
            looking = asyncio.ensure_future(self._look_at_shards(queue))
            looking.add_done_callback(self._fetched)  # its error is for whoever waits
            self._looks[queue] = time.monotonic(), looking
        return await asyncio.shield(looking)

    async def _look_at_shards(self, queue: str) -> list[sharding.Busy]:
        committers = [log.committer for log in await self._logs_of(queue)]

        def look(view: Reading) -> list[sharding.Busy]:
            config = committers[0].look(view).config
            heads = [each.address.root(config) + "head" for each in committers]
            bucket_view(view).renew_changed(heads)
            return sharding.busy(view, [each.look(view) for each in committers])

        return await self._space.read(look, deadline=self._timeout)

    def _polling(self, queue: str) -> Polling:
        polling = self._pollings.get(queue)
        if polling is None:
            polling = self._pollings[queue] = Polling(self._options.poll_interval)
        return polling

    # Late blocks.

    async def maintain(self, queue: str) -> dict[str, int]:
        """Besides: what is late is set aside, and what a later epoch lets pass comes back."""
        done = await super().maintain(queue)
        if not done:
            return done
        space = self._bucket
        if time.monotonic() - self._forgot.get(queue, -_FORGETS_S) >= _FORGETS_S:
            self._forgot[queue] = time.monotonic()
            done["forgotten_keys"] += await self._living_keys(queue, queue).forget_ended()
        done["orphans"] += await space.sweep(ORPHAN_SECONDS)
        await space.identify()
        await self._give_heads(queue, time.monotonic() + self._timeout)
        set_aside, back = 0, Recovered()
        for log in await self._all_logs(queue):
            set_aside += await self._window_of(log.address.text).quarantine.tend()
            if self._lapses_at(log) <= space.clock():
                await lapsing.end(log, self._cache)
            if self._window_of(log.address.text).quarantine.has_copies and space.epoch:
                back += await self._recovery(queue, log).bring_back(epoch=space.epoch)
        return done | {"blocks_set_aside": set_aside, "recovered": back.recovered}

    def _lapses_at(self, log: Log) -> float:
        """When the next message of a log expires, as upkeep has last seen it."""
        return self._window_of(log.address.text).quarantine.lapses_at

    def _bring_back_meanwhile(self, queue: str) -> None:
        """Once for every epoch, also where nobody runs `maintain`: what was set aside before may pass now."""
        queue, epoch = queues.address(queue).queue, self._bucket.epoch
        if epoch > self._passed.get(queue, 0.0):
            self._passed[queue] = epoch
            self._meanwhile(self._bring_back(queue, epoch))

    async def _bring_back(self, queue: str, epoch: float) -> None:
        for log in await self._all_logs(queue):
            await self._space.read(log.committer.look, deadline=self._timeout)  # where it lies: nobody has used it yet
            await self._recovery(queue, log).bring_back(epoch=epoch)

    async def recover(
        self, queue: str, *, delete: bool = False, on_progress: Callable[[int], None] | None = None
    ) -> Recovered:
        """Bring back everything that was set aside, exactly once; or delete it."""
        await self._bucket.identify()
        done = Recovered()
        for log in await self._all_logs(queue):
            await self._window_of(log.address.text).quarantine.tend()
            done += await self._recovery(queue, log).bring_back(delete=delete, on_progress=on_progress)
        return done

    async def check(self) -> list[Check]:
        return [*await super().check(), await self._late_line()]

    async def _late_line(self) -> Check:
        try:
            late = {info.name: (await self.stats(info.name)).set_aside for info in await self.queues()}
        except Damaged:  # which the line of objects names
            return Check("set aside", "warn", "cannot be counted while a queue is damaged")
        named = ", ".join(f"{count:,} of {name!r}" for name, count in late.items() if count)
        if not named:
            return Check("set aside", "ok", "no message was written late")
        why = "their objects were written long after they were sent, or copied, restored or rewritten since"
        return Check("set aside", "warn", f"{named} are kept but not delivered: {why}; `holdfast recover`")

    async def _all_logs(self, queue: str) -> list[Log]:
        """Those of a queue and its dead letters."""
        return [*await self._logs_of(queue), self._log(queue + DEAD)]

    def _recovery(self, queue: str, log: Log) -> Recovery:
        async def known(ids: set[str]) -> set[str]:
            finder = self._finder(queue)
            return await self._read(finder, lambda view: known_among(finder, view, ids))

        marks = self._log(queue).committer.root
        return Recovery(self._bucket, log, self._ids, known, marks=marks, timeout=self._timeout)

    def is_resting(self, queue: str) -> bool:
        """Upkeep costs requests: nothing has happened and nothing expires, so there is nothing to keep up."""
        if any(self._lapses_at(log) < NEVER for log in self._logs.values() if log.address.queue == queue):
            return False
        return self._polling(queue).is_resting()


def _left(until: float) -> float:
    return max(0.0, until - time.monotonic())
