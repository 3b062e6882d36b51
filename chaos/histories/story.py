"""What the calls of a run say about each message of a queue: who sent it, who had it when, who ended it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from .batching import batch_deliveries, batch_settles, unread_batches
from .calls import SETTLING, Call, Given, Hurt, Sighting
from .quiet import DRAINED, LEASE, Ending, Rest

_OUTLIVES = 2.0  # seconds at scale 1 by which a request may outlive its killed caller
_CLAIMED_AHEAD = 8.0  # seconds at scale 1: the longest lease that a dead process may have taken ahead, doubled


class Doubt(msgspec.Struct, frozen=True):
    """What a store's documentation leaves open, in seconds."""

    clocks: float = 0.0  # by which two processes may read the time differently
    foreign: float = 0.0  # by which another's lease may outlast its end
    pausing: float = 0.0  # until every process knows that a queue is paused
    ahead: bool = False  # whether messages are claimed before they are asked for


class Delivery(msgspec.Struct, frozen=True):
    """A message in somebody's hands. `claimed` is by the store's clock, `began` and `ended` by the machine's."""

    given: Given
    began: float
    ended: float
    lease: float
    claimed: float

    @property
    def token(self) -> str:
        return self.given.token


class End(msgspec.Struct, frozen=True):
    """Somebody was told that the message is over."""

    kind: str  # complete kill lastfail cancel drain
    token: str
    began: float
    ended: float
    keep: bool | None = None
    result: str | None = None


class Message(msgspec.Struct, kw_only=True):
    """All that happened to one message."""

    id: str
    sent: Call | None = None  # None: nobody who was answered sent it
    origin: str = ""  # the message it is a replay of
    deliveries: list[Delivery] = []
    settles: dict[str, list[Call]] = {}  # by token
    cancels: list[Call] = []
    taken: list[Call] = []  # calls that may have taken it from its holder
    changes: list[Call] = []  # that may have changed it, and those that were answered with no
    replays: list[Call] = []  # of which it is an original
    ends: list[End] = []
    maybe: list[Call] = []  # what may have ended it
    final: Sighting | None = None

    def changed(self, before: float) -> list[Call]:
        """What may have changed it until an instant."""
        return [call for call in self.changes if call.number != 0 and call.began < before]

    def of(self, delivery: Delivery) -> list[Call]:
        """What was asked for with the token of a delivery."""
        return self.settles.get(delivery.token, [])


class Story(msgspec.Struct, kw_only=True):
    """One queue."""

    name: str
    calls: list[Call]
    rest: Rest
    doubt: Doubt
    window: float
    exhausted: str  # how a message ends that has no attempts left
    sharded: bool
    sent: dict[str, Call]  # by the value's name
    messages: dict[str, Message] = {}
    owner: dict[str, str] = {}  # the value's name, by id
    unheard: list[tuple[float, float]] = []  # when messages may have been held without our knowledge
    purges: list[Call] = []

    def of(self, op: str) -> list[Call]:
        return [call for call in self.calls if call.op == op]

    def made(self, message: Message) -> float:
        """Since when a message may be there."""
        if message.sent is not None:
            return message.sent.began
        original = self.messages.get(message.origin)
        return min((call.began for call in original.replays), default=0.0) if original is not None else 0.0

    def expiry(self, message: Message) -> tuple[float, float] | None:
        """When it expires, at the earliest and at the latest; None: never, as a copy that a replay has made."""
        sent = self.sent.get(self.owner.get(message.id, ""))
        if message.origin or sent is None or sent.terms.expires is None:
            return None
        return sent.began + sent.terms.expires - self.doubt.clocks, sent.ended + sent.terms.expires + self.doubt.clocks

    def may_have_expired(self, message: Message, at: float) -> bool:
        expiry = self.expiry(message)
        return expiry is not None and expiry[0] < at

    def is_unheard(self, began: float, ended: float) -> int:
        """How many claims that nobody told us of touch this time."""
        return sum(1 for start, end in self.unheard if start < ended and end > began)


def stories(calls: Sequence[Call], hurts: Sequence[Hurt], ending: Ending, doubt: Doubt) -> list[Story]:
    _close(calls, hurts, ending.scale)
    return [_story(name, calls, hurts, ending, doubt) for name in ending.queues]


def _close(calls: Iterable[Call], hurts: Iterable[Hurt], scale: float) -> None:
    """A call that was never answered may have had its effect until a moment after the kill."""
    killed = {hurt.process: hurt.began for hurt in hurts if hurt.killed}
    for call in calls:
        if call.ended == float("inf"):
            call.ended = killed.get(call.process, float("inf")) + _OUTLIVES * scale


def _story(name: str, calls: Sequence[Call], hurts: Sequence[Hurt], ending: Ending, doubt: Doubt) -> Story:
    mine = [call for call in calls if call.queue == name]
    story = Story(
        name=name, calls=mine, rest=ending.queues[name], doubt=doubt, window=ending.window,
        exhausted="dead" if ending.dead_letter[name] else "failed", sharded=ending.shards > 1,
        sent={uid: call for call in mine if call.op == "enqueue" for uid in call.uids},
        purges=[call for call in mine if call.op == "purge" and call.may_have_happened],
    )  # fmt: skip
    story.unheard = list(_unheard(story, hurts, ending.scale))
    _collect(story)
    for message in story.messages.values():
        message.deliveries = _in_order(message.deliveries, doubt)
        message.final = story.rest.final.get(message.id)
        _end(message)
    return story


def _in_order(deliveries: list[Delivery], doubt: Doubt) -> list[Delivery]:
    """By the store's clock; those that are nearer to each other than its readers may disagree, by the machine's."""
    runs: list[list[Delivery]] = []
    for each in sorted(deliveries, key=lambda each: (round(each.claimed, 3), each.ended)):
        if runs and each.claimed - runs[-1][-1].claimed < doubt.clocks:
            runs[-1].append(each)
        else:
            runs.append([each])
    return [each for run in runs for each in sorted(run, key=lambda each: each.ended)]


def _unheard(story: Story, hurts: Iterable[Hurt], scale: float) -> Iterable[tuple[float, float]]:
    for call in story.calls:
        if call.op == "dequeue" and call.outcome in ("unknown", "error"):
            yield call.began, call.ended + call.lease + story.doubt.foreign
    yield from unread_batches(story.calls)
    for hurt in hurts if story.doubt.ahead else ():
        yield hurt.began - 0.5, hurt.ended + _CLAIMED_AHEAD * scale + story.doubt.foreign


def _in_steps(story: Story) -> list[Call]:
    """With shards a batch is settled in the first head, then in the others: who is replaced in between is refused."""
    return [
        msgspec.structs.replace(call, outcome="unknown")
        if call.outcome == "refused" and call.op in ("claim batch", "settle batch")
        else call
        for call in story.calls
    ]


def _collect(story: Story) -> None:
    """Every call goes to the messages it is about."""
    for call in story.calls:
        if call.op == "enqueue" and call.ok:
            _collect_sent(story, call)
        elif call.op == "dequeue" and call.ok:
            _collect_claim(story, call)
        elif call.op in (*SETTLING, "extend"):
            _settle(story, call)
        elif call.op in ("cancel", "take_back", "change"):
            _collect_operation(story, call)
        elif call.op == "replay" and call.may_have_happened:
            for id in call.wanted:
                _message(story, id).replays.append(call)
    _collect_batches(story)
    for each in story.rest.drained:
        _deliver(story, Delivery(each.given, each.began, each.ended, LEASE, each.given.expires - LEASE))
    _see(story)


def _collect_operation(story: Story, call: Call) -> None:
    """By somebody who does not hold the message."""
    message = _message(story, call.id)
    if call.op == "cancel":
        message.cancels.append(call)
    elif call.op == "change" and call.may_have_happened:
        message.changes.append(call)
    elif call.op == "take_back" and call.may_have_happened and call.number != 0:
        message.taken.append(call)


def _collect_claim(story: Story, call: Call) -> None:
    for given in call.given:
        _deliver(story, Delivery(given, call.began, call.ended, call.lease, given.expires - call.lease))


def _collect_batches(story: Story) -> None:
    for given, call, began in batch_deliveries(story.calls):
        _deliver(story, Delivery(given, began, call.ended, float("inf"), call.number or 0.0))
    for settle in batch_settles(_in_steps(story) if story.sharded else story.calls):
        _settle(story, settle)


def _collect_sent(story: Story, call: Call) -> None:
    for id, uid in zip(call.ids, call.uids, strict=False):
        message = _message(story, id)
        if message.sent is None or call.began < message.sent.began:
            message.sent = call
        if call.terms.dedup_key is None:
            story.owner[id] = uid


def _deliver(story: Story, delivery: Delivery) -> None:
    message = _message(story, delivery.given.id)
    message.deliveries.append(delivery)
    message.origin = message.origin or delivery.given.origin


def _settle(story: Story, call: Call) -> None:
    _message(story, call.id).settles.setdefault(call.token, []).append(call)


def _message(story: Story, id: str) -> Message:
    if id not in story.messages:
        story.messages[id] = Message(id=id)
    return story.messages[id]


def _see(story: Story) -> None:
    """What reads have shown, and what the quiet end shows: values of messages whose sender heard nothing."""
    for id, final in story.rest.final.items():
        message = _message(story, id)
        message.origin = message.origin or final.origin
        story.owner.setdefault(id, final.uid)
    for call in story.calls:
        for seen in call.seen:
            message = _message(story, seen.id)
            message.origin = message.origin or seen.origin
            story.owner.setdefault(seen.id, seen.uid)


def _end(message: Message) -> None:
    """Who was told that it is over, and who may have ended it without hearing so."""
    for delivery in message.deliveries:
        asked = message.of(delivery)
        message.maybe += [call for call in asked if call.outcome == "unknown" and call.op != "extend"]
        last = delivery.given.attempt == delivery.given.max_attempts
        for call in asked:
            if call.ok and call.op in ("complete", "kill"):
                message.ends.append(End(call.op, call.token, call.began, call.ended, call.keep, call.result))
            elif call.ok and call.op == "fail" and last and not call.again:
                message.ends.append(End("lastfail", call.token, call.began, call.ended))
        if delivery.lease == LEASE:
            message.ends.append(End("drain", delivery.token, delivery.ended, float("inf"), result=DRAINED))
    message.maybe += [call for call in message.cancels if call.outcome == "unknown"]
    message.ends += [End("cancel", x.call, x.began, x.ended) for x in message.cancels if x.ok and x.number]


def by_key(story: Story) -> dict[str, list[tuple[Call, str]]]:
    """Answers to enqueues with a dedup key."""
    found: dict[str, list[tuple[Call, str]]] = defaultdict(list)
    for call in story.of("enqueue"):
        if call.ok and call.terms.dedup_key is not None:
            found[call.terms.dedup_key] += [(call, id) for id in call.ids]
    return found
