"""Producers on a space with a repeat window: the block's name is its proof, and a lost answer has an end.

A write is repeated with the same name and bytes until the window of its birth is over. What is unclear then is
`UnknownOutcome`; its `retry` waits until nothing can arrive any more, looks, and adds what is not there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from .... import ids
from ....errors import UnknownOutcome
from ...records import Envelope
from .. import bundles, drafts, queues, rows
from ..append import Block, Call, blocks_of, hand_out
from ..calendar import SAME
from ..names import BlockName, dedup_key, due_of, plain
from ..repeat_window import Home
from ..rows import Rows
from ..space import Reading, Transaction, Unclear
from ..topics import work_topic
from .promised import PromisedAppends
from .promises import Promises
from .repeat import Repeat
from .replay import Replays

if TYPE_CHECKING:
    from .space import CloudSpace

_CERTAIN = 2.0  # seconds for which the queue we write to is certainly the one we looked up
_OFFERED = 1  # blocks of an append that are kept at hand


class Appends:
    """One per log and process."""

    def __init__(
        self,
        space: CloudSpace,
        home: Home,
        *,
        added: Callable[[Sequence[str]], None],
        set_aside: Callable[[], Awaitable[object]],
    ) -> None:
        self._space = space
        self._address = home.address
        self._ids = maker = home.ids
        self._timeout = timeout = home.timeout
        self._root = ""  # of the log, as last seen
        self._look = home.found
        self._set_aside = set_aside
        self._cache = home.cache
        self._added = added
        queue = home.address.text
        promises = Promises(space, timeout=timeout, topic=work_topic(queue))
        self._promised = PromisedAppends(
            space, queue, maker, promises, timeout=timeout, is_there=self._is_there, added=added
        )
        self.replays = Replays(space, queue, maker, promises, timeout=timeout, is_there=self._is_there)

    async def _found(self, ids: Sequence[str]) -> list[bool]:
        """Which of these arrived; the others can be written anew.

        A block that looks late may be one whose object was rewritten. So it is set aside in the head first: else a
        process that knows a later epoch could absorb it beside what is written now.
        """
        await self._set_aside()
        return await self._look(ids)

    async def _is_there(self, id: str) -> bool:
        return (await self._found([id]))[0]

    async def write(self, calls: list[Call]) -> None:
        """Every call has its ids or its error then."""
        keyed = [call for call in calls if call.has_dedup_keys]
        together = [call for call in calls if not call.has_dedup_keys]
        writing = [self._append_keyed(call) for call in keyed]
        outcomes = await asyncio.gather(
            *writing, *([self._append(together)] if together else []), return_exceptions=True
        )
        for call, outcome in zip(keyed, outcomes, strict=False):
            if isinstance(outcome, BaseException):
                call.refuse(self._unknown(call, outcome))
        if together and isinstance(outcomes[-1], BaseException):
            self._refuse(together, outcomes[-1])

    def _refuse(self, calls: list[Call], error: BaseException) -> None:
        for call in calls:
            if isinstance(error, Unclear) and call.ids:
                again = self._repeat(call.messages, call.ids)
                call.refuse(UnknownOutcome(str(error), ids=call.ids, retry=again))
            else:
                call.refuse(error)

    def _unknown(self, call: Call, error: BaseException) -> BaseException:
        """Where every message has a key the keys know what arrived."""
        if not isinstance(error, Unclear):
            return error
        has_keys = all(each.dedup_key is not None for each in call.messages)
        return UnknownOutcome(str(error), retry=partial(self._repeat_keyed, call) if has_keys else None)

    async def _repeat_keyed(self, call: Call) -> list[str]:
        try:
            await self._append_keyed(call)
        except Unclear as error:
            raise self._unknown(call, error) from error
        return list(call.ids)

    async def _append_keyed(self, call: Call) -> None:
        """Messages with dedup keys are promised one by one, those between them go together; in order of the call."""
        made: list[str] = []
        news: list[bool] = []
        for is_plain, some in groupby(call.messages, key=lambda each: each.dedup_key is None):
            if is_plain:
                part = Call(list(some), None)
                await self._append([part])
                made += part.ids
                news += [True] * len(part.ids)
            else:
                promised = await self._promised.append(list(some), dedup_key)
                made += [each.id for each in promised]
                news += [each.new for each in promised]
        call.ids, call.news = made, news

    async def _append(self, calls: list[Call]) -> None:
        now = self._space.clock()
        blocks = blocks_of(calls, self._ids, now, SAME)
        hand_out(calls, blocks, now, SAME)
        if len(blocks) > 1 and any(len({id[:-5] for id in call.ids}) > 1 for call in calls):
            blocks = self._bundled(calls, now)
        while True:
            looked = time.monotonic()
            await self._space.transact(partial(self._publish, blocks=blocks), deadline=self._timeout)
            self._added([block.key for block in blocks if due_of(block.key)])
            for block in blocks[:_OFFERED]:
                self._cache.offer(self._root + block.key, block.data)
            if time.monotonic() - looked < _CERTAIN or await self._space.read(self._is_current, deadline=self._timeout):
                return

    def _bundled(self, calls: list[Call], now: float) -> list[Block]:
        """A call over several blocks: all of them or none. Its ids say that they may lie anywhere."""
        blocks = blocks_of(calls, self._ids, now, SAME, carried=True)
        hand_out(calls, blocks, now, SAME)
        number = self._ids.block(now)
        parts, bundle = bundles.bundle(number, [(block.key, block.data) for block in blocks])
        return [Block(key, data, (0, 0.0, 0, 0), number, 0) for key, data in (*parts, bundle)]

    def _publish(self, tx: Transaction, *, blocks: list[Block]) -> None:
        self._root = self._address.root(queues.read(tx, self._address.queue))
        for block in blocks:
            tx.create(self._root + block.key, block.data)
        tx.signal(work_topic(self._address.text))

    def _is_current(self, view: Reading) -> bool:
        """Whether we wrote to the queue that is there now: it may have been made anew meanwhile."""
        return self._address.root(queues.read_current(view, self._address.queue)) == self._root

    def _repeat(self, messages: Sequence[Envelope], made: list[str]) -> Repeat:
        def write(places: list[int]) -> tuple[float, Awaitable[object]]:
            now = self._space.clock()
            blocks = [self._under_its_id(messages[place], made[place], now) for place in places]
            publish = partial(self._publish, blocks=blocks)
            birth = max(ids.born_at(block.number) for block in blocks)
            return birth, self._space.transact(publish, deadline=self._timeout)

        birth = max(ids.born_at(ids.number(id) or 0) for id in made)
        return Repeat(self._space, made, birth, found=self._found, write=write)

    def _under_its_id(self, message: Envelope, id: str, now: float) -> Block:
        born = ids.born_at(ids.number(id) or 0)
        due = message.at if message.at is not None else born + message.delay if message.delay > 0 else 0.0
        number = self._ids.block(now, message.priority, carried=True)
        own = plain(id)
        until = drafts.end(message.expires, message.lifetime, born, SAME)
        name = BlockName(f"{number:032x}", 1, message.priority, message.max_attempts or 0, 0, False, own, own, until)
        columns = Rows(
            [message.payload], message.content_type, [message.headers] if message.headers else None, [own], [born]
        )
        # Where an id is looked for that its block's name does not show; long due is due by anybody's clock.
        key = name.later_key(due or born)
        return Block(key, rows.encode(columns), (message.priority, due, 0, until), number, 1)
