"""A naive head: one record a message and no sets, to compare the real one with.

Where the head is free to choose (which groups of retries leave in a flush, how long it remembers a token) the model
checks that the choice is allowed and follows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.stores.log.head import bits
from holdfast.stores.log.head.state import (
    Absorb,
    Claim,
    Drop,
    Expire,
    Extend,
    Freeze,
    Frozen,
    Head,
    Intent,
    Purge,
    Remove,
    Rules,
    Settle,
    Settled,
)
from holdfast.stores.log.names import due_of, parse_block

ORDER = (Settle, Extend, Remove, Purge, Absorb, Expire, Claim, Freeze, Drop)
Spot = tuple[int, int]  # block, place


@dataclass
class Message:
    """`state`: fresh, leased, waiting, settled, frozen waiting, frozen settled or gone."""

    block: int
    place: int
    order: tuple[int, str, int]
    limit: int
    due: float
    attempts: int
    crashed: bool
    state: str = "fresh"
    token: str = ""
    expires: float = 0.0
    status: str = ""
    error: str | None = None
    result: bytes | None = None
    claims: int = 0
    releases: int = 0
    used: dict[str, str] = field(default_factory=dict)  # what each token that settled it made of it

    def lonely(self) -> bool:
        return (self.crashed or self.state == "leased") and self.attempts + 1 >= self.limit

    def seen(self) -> tuple[Any, ...]:
        """What a head shows of it."""
        if self.state == "leased":
            return "leased", self.token, self.expires, self.attempts, self.crashed
        if self.state.endswith("waiting"):
            return self.state, self.token, self.status, self.due, self.attempts, self.crashed, self.error
        if self.state.endswith("settled"):
            return self.state, self.token, self.status, self.attempts, self.error, self.result
        return (self.state,)


class NaiveHead:
    """See the module. `limits` are NEAR_MOST and NEAR_KEPT of the head under test."""

    def __init__(self, rules: Rules, now: float, limits: tuple[int, int]) -> None:
        self.rules = rules
        self.now = now
        self.limits = limits
        self.messages: dict[Spot, Message] = {}
        self.keys: list[str] = []
        self.flush: str | None = None
        self.ended: dict[str, int] = {}

    def apply(self, intents: Sequence[Intent], results: Sequence[Any], after: Head) -> None:
        """Follow, and compare the results; `after` says what the head chose where it may choose."""
        for kind in ORDER:
            for intent, result in zip(intents, results, strict=True):
                if type(intent) is kind:
                    getattr(self, kind.__name__.lower())(intent, result, after)

    def settle(self, intent: Settle, result: int, after: Head) -> None:
        must = may = 0
        for message in self._of(intent.block, intent.mask):
            bit = 1 << message.place
            if message.token == intent.token and message.state == "leased":
                self._settle(message, intent)
                must |= bit
            elif message.used.get(intent.token) in self._outcomes(intent.action):
                may |= bit
                must |= bit if message.token == intent.token and message.state != "gone" else 0
        assert must & ~result == 0, "a right settlement was refused"
        assert result & ~(must | may) == 0, "a wrong settlement was accepted"

    def _outcomes(self, action: str) -> tuple[str, ...]:
        """What an action can make of a message, so that doing it again is a repeat."""
        ends = {"complete": ("completed",), "dead": (self.rules.dead,), "retry": ("retry", self.rules.dead)}
        return ends.get(action, (action,))

    def _settle(self, message: Message, intent: Settle) -> None:
        message.error = intent.error
        spent = message.attempts >= message.limit
        if intent.action == "release" or (intent.action == "retry" and not spent):
            message.attempts -= intent.action == "release"
            message.releases += intent.action == "release"
            message.state, message.due, message.status = "waiting", self.now + intent.delay, intent.action
        else:
            message.result = intent.results.get(message.place)
            if intent.action == "complete":
                self._end(message, "completed", keep=self.rules.archive if intent.keep is None else intent.keep)
            else:
                self._die(message)
        message.used[intent.token] = message.status

    def _die(self, message: Message) -> None:
        self._end(message, self.rules.dead, keep=self.rules.archive or self.rules.dead != "failed")

    def _end(self, message: Message, status: str, *, keep: bool) -> None:
        self.ended[status] = self.ended.get(status, 0) + 1
        message.status, message.state = status, "settled" if keep else "gone"

    def extend(self, intent: Extend, result: int, after: Head) -> None:
        held = self._of(intent.block, intent.mask, "leased")
        held = [message for message in held if message.token == intent.token]
        assert result == sum(1 << message.place for message in held)
        for message in held:
            message.expires = max(message.expires, self.now + intent.seconds)

    def remove(self, intent: Remove, result: int, after: Head) -> None:
        free = [each for each in self._of(intent.block, intent.mask) if self._free(each)]
        assert result == sum(1 << message.place for message in free)
        for message in free:
            message.token, message.error, message.result = "", intent.error, None
            if intent.error is None:
                message.state = "gone"
            else:
                self._end(message, "failed", keep=self.rules.archive)

    def purge(self, intent: Purge, result: int, after: Head) -> None:
        free = [each for each in self.messages.values() if self._free(each)]
        assert result == len(free)
        for message in free:
            message.state = "gone"

    def absorb(self, intent: Absorb, result: int, after: Head) -> None:
        new = [key for key in intent.keys if key not in self.keys]
        assert result == len(new)
        for key in new:
            self.keys.append(key)
            name = parse_block(key)
            for place in range(name.count):
                order = (255 - name.priority, name.block, place)
                limit = name.max_attempts or self.rules.max_attempts
                message = Message(len(self.keys), place, order, limit, due_of(key), name.attempts, name.crashed)
                self.messages[message.block, place] = message

    def expire(self, intent: Expire, result: list[Any], after: Head) -> None:
        over = [
            each
            for each in self.messages.values()
            if self._over(each) and (each.attempts >= each.limit or not self.rules.retry_expired)
        ]
        told = {(group.block, place): group.attempts for group in result for place in bits.places(group.mask)}
        assert told == {(each.block, each.place): each.attempts for each in over}
        for message in over:
            message.token, message.error, message.result = "", "lease expired", None
            self._die(message)

    def claim(self, intent: Claim, result: list[Any], after: Head) -> None:
        expected = self._deliverable(intent.limit)
        given = [(taken, place) for taken in result for place in bits.places(taken.mask)]
        spots = [(taken.block, place) for taken, place in given]
        blocks = [taken.block for taken in result]
        assert blocks == sorted(blocks, key=blocks.index), "a block is left and taken up again"
        by_block = sorted(spots, key=lambda spot: (blocks.index(spot[0]), spot[1]))
        assert by_block == [(each.block, each.place) for each in expected]
        for taken, place in given:
            message = self.messages[taken.block, place]
            recovered = message.state == "leased"
            assert (taken.recovered, taken.alone) == (recovered, message.lonely())
            message.crashed |= recovered
            message.attempts += 1
            message.claims += 1
            message.state, message.token, message.expires = "leased", intent.token, self.now + intent.lease
            assert (taken.attempt, taken.expires) == (message.attempts, message.expires)

    def _deliverable(self, limit: int) -> list[Message]:
        ready = [each for each in self.messages.values() if self._ready(each)]
        chosen: list[Message] = []
        for message in sorted(ready, key=lambda each: each.order):
            if self.rules.paused or len(chosen) == limit:
                break
            if message.lonely():
                return chosen or [message]
            chosen.append(message)
        return chosen

    def freeze(self, intent: Freeze, result: bool, after: Head) -> None:
        settled = [each for each in self.messages.values() if each.state == "settled"]
        waiting = [each for each in self.messages.values() if each.state == "waiting"]
        many = len(waiting) > self.limits[0]
        assert result is (self.flush is None and (bool(settled) or many))
        if not result:
            return
        self.flush = intent.flush
        left = self._spilled(after.frozen)
        assert bool(left) == many
        if many:
            stay = [each for each in waiting if each not in left]
            assert len(stay) <= self.limits[1]
            assert max((each.due for each in stay), default=0.0) <= min(each.due for each in left)
        for message in settled + left:
            message.state = "frozen " + message.state

    def _spilled(self, frozen: Frozen | None) -> list[Message]:
        groups = frozen.waiting if frozen else []
        return [self.messages[group.block, place] for group in groups for place in bits.places(group.mask)]

    def drop(self, intent: Drop, result: bool, after: Head) -> None:
        assert result is (self.flush == intent.flush)
        if result:
            self.flush = None
            for message in self.messages.values():
                if message.state.startswith("frozen"):
                    message.state = "gone"

    def _of(self, block: int, mask: int, *states: str) -> list[Message]:
        members = [self.messages.get((block, place)) for place in bits.places(mask)]
        return [each for each in members if each is not None and (not states or each.state in states)]

    def _over(self, message: Message) -> bool:
        return message.state == "leased" and message.expires <= self.now

    def _free(self, message: Message) -> bool:
        """Nobody holds it, and it has not ended."""
        return message.state in ("fresh", "waiting") or self._over(message)

    def _ready(self, message: Message) -> bool:
        return self._over(message) or (message.state in ("fresh", "waiting") and message.due <= self.now)

    # What must be true of a head at any time.

    def compare(self, head: Head, finished: Sequence[str]) -> None:
        live = {spot: each.seen() for spot, each in self.messages.items() if each.state != "gone"}
        assert shown(head) == live
        gone = {no: sum(m.state == "gone" for m in self.messages.values() if m.block == no) for no in head.blocks}
        assert {no: block.gone for no, block in head.blocks.items()} == gone
        left = {spot[0] for spot in live}
        assert sorted(finished) == sorted(key for no, key in enumerate(self.keys, 1) if no not in left)
        assert head.completed == self.ended.get("completed", 0)
        assert head.failed == self.ended.get("failed", 0) + self.ended.get("moved", 0)
        assert [group.due for group in head.waiting] == sorted(group.due for group in head.waiting)
        for message in self.messages.values():
            started = parse_block(self.keys[message.block - 1]).attempts
            assert message.attempts == started + message.claims - message.releases <= message.limit


def shown(head: Head) -> dict[Spot, tuple[Any, ...]]:
    """What the head says of every message; each is said once."""
    frozen = head.frozen or Frozen("", 0.0, [], [])
    said = [(block.no, place, ("fresh",)) for block in head.blocks.values() for place in bits.places(block.fresh())]
    for lease in head.leases:
        what = ("leased", lease.token, lease.expires, lease.attempts, lease.crashed)
        said += [(lease.block, place, what) for place in bits.places(lease.mask)]
    for state, groups in (("waiting", head.waiting), ("frozen waiting", frozen.waiting)):
        for x in groups:
            retry = (state, x.token, x.status, x.due, x.attempts, x.crashed, x.error)
            said += [(x.block, place, retry) for place in bits.places(x.mask)]
    said += [outcome for group in head.settled for outcome in _outcomes("settled", group)]
    said += [outcome for group in frozen.settled for outcome in _outcomes("frozen settled", group)]
    found = {(block, place): what for block, place, what in said}
    assert len(found) == len(said), "a message is in two states"
    return found


def _outcomes(state: str, group: Settled) -> list[tuple[int, int, tuple[Any, ...]]]:
    places = bits.places(group.mask)
    results = group.results or [None] * len(places)
    return [
        (group.block, place, (state, group.token, group.status, group.attempts, group.error, result))
        for place, result in zip(places, results, strict=True)
    ]
