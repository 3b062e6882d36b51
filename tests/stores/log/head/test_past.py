"""What the head remembers of attempts."""

from __future__ import annotations

import pytest

from holdfast.limits import HISTORY_ATTEMPTS, HISTORY_TEXT_BYTES
from holdfast.stores.log.head import codec, past
from holdfast.stores.log.head.machine import apply
from holdfast.stores.log.head.state import (
    ENDLESS,
    Absorb,
    Claim,
    Drop,
    Freeze,
    Head,
    Intent,
    ListTicket,
    Past,
    Result,
    Rules,
    Settle,
)
from holdfast.stores.log.names import BlockName

RULES = Rules(max_attempts=99)


class Queue:
    """A head with one block, and a clock."""

    def __init__(self, count: int = 4, rules: Rules = RULES) -> None:
        self.head = Head()
        self.now = 100.0
        self.rules = rules
        self.do(Absorb([BlockName(f"{1 << 70:032x}", count, 0, 0, 0, False).inbox_key()], ListTicket()))

    def do(self, intent: Intent) -> Result:
        self.now += 1.0
        applied = apply(self.head, [intent], self.now, self.rules)
        self.head = applied.head
        return applied.results[0]

    def claim(self, token: str, lease: float = 1000.0) -> None:
        assert self.do(Claim(token, 10, lease, "me"))

    def fail(self, token: str, mask: int, error: str = "no", delay: float = 0.0) -> None:
        assert self.do(Settle(token, 1, mask, "retry", delay, error=error)) == mask

    def errors(self, place: int) -> list[str | None]:
        return [each.error for each in past.of(self.head, 1, place)]


def test_a_failed_attempt_is_remembered_with_its_time_and_its_worker():
    queue = Queue()
    queue.claim("t")
    queue.fail("t", 0b0101, "x" * 1000)
    assert queue.head.past == [Past(1, 0b0101, 102.0, 103.0, "me", "x" * HISTORY_TEXT_BYTES)]


def test_a_lease_that_is_over_is_remembered_once_somebody_takes_the_message():
    queue = Queue(1)
    queue.claim("t", 5.0)
    queue.now += 10.0
    queue.claim("u")
    assert queue.head.past == [Past(1, 1, 102.0, 107.0, "me", "lease expired")]


def test_each_message_has_its_own_and_only_the_newest():
    queue = Queue(2)
    for number in range(HISTORY_ATTEMPTS + 3):
        queue.claim(f"t{number}")
        queue.fail(f"t{number}", 0b01, f"{number}", delay=1.0)
        queue.fail(f"t{number}", 0b10, f"other {number}", delay=1.0)
        queue.now += 5.0
    last = range(3, HISTORY_ATTEMPTS + 3)
    assert queue.errors(0) == [f"{number}" for number in last]
    assert queue.errors(1) == [f"other {number}" for number in last]
    assert len(queue.head.past) == 2 * HISTORY_ATTEMPTS


def test_nothing_is_remembered_of_dead_letters_in_hand():
    queue = Queue(rules=Rules(max_attempts=ENDLESS))
    queue.claim("t")
    queue.fail("t", 0b1)
    assert queue.head.past == []


def test_a_release_is_no_attempt():
    queue = Queue()
    queue.claim("t")
    assert queue.do(Settle("t", 1, 0b1111, "release")) == 0b1111
    assert queue.head.past == []


def test_it_is_forgotten_when_the_flush_that_took_it_along_is_done():
    queue = Queue(1)
    queue.claim("t")
    queue.fail("t", 1)
    queue.claim("u")
    assert queue.do(Settle("u", 1, 1, "complete"))
    assert queue.do(Freeze("f"))
    assert queue.errors(0) == ["no"]
    assert queue.do(Drop("f"))
    assert queue.head.past == []


def test_what_is_kept_of_messages_that_have_left_does_not_grow():
    """A block of which one message stays is not finished."""
    queue = Queue(200)
    queue.do(Claim("t", 200, 1000.0, "me"))
    for place in range(199):
        queue.fail("t", 1 << place, f"{place}", delay=1.0)
    queue.now += 5.0
    queue.do(Claim("u", 199, 1000.0, "me"))
    assert len(queue.head.past) == 199
    queue.do(Settle("u", 1, (1 << 198) - 1, "complete", keep=False))
    assert [each.mask for each in queue.head.past] == [1 << 198]


def test_it_is_written_and_read_and_heads_without_it_do_not_change():
    queue = Queue()
    queue.claim("t")
    plain = codec.HeadWriter().encode(queue.head)
    queue.fail("t", 0b1)
    writer = codec.HeadWriter()
    assert codec.decode(writer.encode(queue.head)).past == queue.head.past
    queue.head.past = []
    queue.head.waiting = []
    assert len(codec.HeadWriter().encode(queue.head)) < len(plain) + 10


def test_versions_that_do_not_know_it_read_the_rest():
    """They look at three items behind the lists; this is the fourth, and the number of the head stays as it was."""
    import msgspec

    queue = Queue()
    queue.claim("t")
    number = msgspec.msgpack.decode(codec.HeadWriter().encode(queue.head))[0]
    queue.fail("t", 0b1)
    wire = msgspec.msgpack.decode(codec.HeadWriter().encode(queue.head))
    assert (wire[0], len(wire), wire[11:14]) == (number, 15, [None, None, {}])


@pytest.mark.parametrize("count", [1, 20])
def test_waiting_messages_leave_when_what_is_remembered_of_them_is_heavy(count: int):
    queue = Queue(300)
    queue.do(Claim("t", 300, 1000.0, "me"))
    for place in range(count * 15):
        queue.fail("t", 1 << place, "x" * 190, delay=50.0)
    assert (past.waiting_bytes(queue.head) > 64 * 1024) == (count == 20)
    assert bool(queue.do(Freeze("f"))) == (count == 20)
