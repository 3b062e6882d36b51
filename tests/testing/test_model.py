"""The oracle itself: it takes right answers, refuses wrong ones, and finds broken stores by random histories."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from holdfast.config import QueueOptions
from holdfast.retry import NoRetry
from holdfast.stores.base import Store
from holdfast.stores.records import Claimed, Claims, Envelope, Expired, Settlement, Stats, Stored
from holdfast.testing import Divergence, Model
from tests import broken_toys
from tests.test_state_machines import Stores, run_histories
from tests.toy_store import ToyStore

NOW = 1000.0


def claimed(id: str, token: str = "t", **how: Any) -> Claimed:
    """A right answer for a fresh message under a lease of 10 seconds, but for `how`."""
    plain = Claimed(id, token, b"1", "application/json", None, 0, 1, 3, NOW, NOW + 10)
    return msgspec.structs.replace(plain, **how)


def model(*ids: str, **options: Any) -> Model:
    """An oracle that knows these pending messages."""
    made = Model(QueueOptions(**options), NOW)
    made.append([Envelope(b"1") for _ in ids], ids)
    return made


def held(**options: Any) -> Model:
    """An oracle with the message `a` under the token `t`."""
    made = model("a", **options)
    made.claim(1, 10, Claims([claimed("a", max_attempts=made.options.max_attempts)]))
    return made


def later(made: Model, seconds: float) -> Model:
    made.advance(seconds)
    return made


def dead() -> Model:
    made = held()
    made.settle(Settlement("a", "t", "dead", error="x"), "ok")
    return made


stored = Stored("a", "pending", b"1", "application/json", None, 0, 0, 3, NOW)
over = Expired("a", 1, "dead", "lease expired")
again = claimed("a", "u", attempt=2, expires_at=NOW + 21, recovered=True)
last = msgspec.structs.replace(again, max_attempts=2)

RIGHT: dict[str, Callable[[], object]] = {
    "first in first out": lambda: model("a", "b").claim(1, 10, Claims([claimed("a")])),
    "nothing there": lambda: model().claim(5, 10, Claims([])),
    "late settle accepted": lambda: later(held(), 11).settle(Settlement("a", "t", "complete"), "ok"),
    "late settle refused": lambda: later(held(), 11).settle(Settlement("a", "t", "complete"), "lost"),
    "last attempt alone": lambda: later(held(max_attempts=2), 11).claim(
        1, 10, Claims([msgspec.structs.replace(last, alone=True)])
    ),
    "taken over": lambda: later(held(), 11).claim(1, 10, Claims([again])),
    "expired for good": lambda: later(held(max_attempts=1), 11).claim(1, 10, Claims([], [over])),
    "expired, not yet told": lambda: later(held(max_attempts=1), 11).claim(1, 10, Claims([])),
    "expired without retries": lambda: later(held(retry=NoRetry()), 11).claim(1, 10, Claims([], [over])),
    "stats": lambda: model("a").stats(Stats(total=1, pending=1)),
    "pending": lambda: model("a").get("a", stored),
    "replayed": lambda: dead().replay("dead", ["a", "a"], 1, {"a": "b"}),
}
WRONG: dict[str, Callable[[], object]] = {
    "last in first out": lambda: model("a", "b").claim(1, 10, Claims([claimed("b")])),
    "too few": lambda: model("a", "b").claim(2, 10, Claims([claimed("a")])),
    "too many": lambda: model("a", "b").claim(1, 10, Claims([claimed("a"), claimed("b", "u")])),
    "unknown message": lambda: model("a").claim(1, 10, Claims([claimed("x")])),
    "held message": lambda: held().claim(1, 10, Claims([claimed("a", "u", attempt=2)])),
    "same token": lambda: later(held(), 11).claim(1, 10, Claims([msgspec.structs.replace(again, token="t")])),
    "wrong attempt": lambda: model("a").claim(1, 10, Claims([claimed("a", attempt=2)])),
    "wrong payload": lambda: model("a").claim(1, 10, Claims([claimed("a", payload=b"2")])),
    "wrong end of the lease": lambda: model("a").claim(1, 10, Claims([claimed("a", expires_at=NOW + 5)])),
    "not marked alone": lambda: later(held(max_attempts=2), 11).claim(1, 10, Claims([last])),
    "expired too early": lambda: held(max_attempts=1).claim(1, 10, Claims([], [over])),
    "expired with attempts left": lambda: later(held(), 11).claim(1, 10, Claims([], [over])),
    "stale settle": lambda: held().settle(Settlement("a", "x", "complete"), "ok"),
    "holder refused": lambda: held().settle(Settlement("a", "t", "complete"), "lost"),
    "stale extend": lambda: held().extend("a", "x", 20, NOW + 20),
    "shortened lease": lambda: held().extend("a", "t", 5, NOW + 5),
    "holder's extend refused": lambda: held().extend("a", "t", 20, None),
    "held message cancelled": lambda: held().cancel("a", True),
    "pending message not cancelled": lambda: model("a").cancel("a", False),
    "held message purged": lambda: held().purge(1),
    "doubled id": lambda: model("a").append([Envelope(b"1")], ["a"]),
    "wrong status": lambda: held().get("a", stored),
    "lost message": lambda: model("a").get("a", None),
    "wrong count": lambda: model("a").stats(Stats(total=1, processing=1)),
    "wrong total": lambda: model("a").stats(Stats(total=2, pending=1)),
    "missing in a scan": lambda: model("a").scan("ready", []),
    "foreign in a scan": lambda: held().scan("ready", [stored]),
    "replay twice": lambda: dead().replay("dead", ["a", "a"], 2, {"a": "b"}),
    "replay of a live message": lambda: model("a").replay("dead", ["a"], 1, {"a": "b"}),
    "dead letter not deleted": lambda: dead().discard("dead", ["a"], 0),
}


@pytest.mark.parametrize("case", RIGHT)
def test_right_answers_pass(case: str) -> None:
    RIGHT[case]()


@pytest.mark.parametrize("case", WRONG)
def test_wrong_answers_are_refused(case: str) -> None:
    with pytest.raises(Divergence):
        WRONG[case]()


def test_dedup_key_gives_the_first_id_within_the_window() -> None:
    made = Model(QueueOptions(dedup_window=5), NOW)
    made.append([Envelope(b"1", dedup_key="k"), Envelope(b"2", dedup_key="k")], ["a", "a"])
    with pytest.raises(Divergence):
        made.append([Envelope(b"1", dedup_key="k")], ["b"])
    later(made, 6).append([Envelope(b"1", dedup_key="k")], ["b"])


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "broken",
    [
        broken_toys.NoTokenCheck,
        broken_toys.AttemptCountedAtFailure,
        broken_toys.PriorityIgnored,
        broken_toys.DedupIgnored,
        broken_toys.ReleaseCostsAnAttempt,
        broken_toys.ExpiredStaysHeld,
        broken_toys.NeverAlone,
        broken_toys.PurgeKillsHeldMessages,
        broken_toys.CountsWrong,
    ],
)
def test_random_histories_find_broken_stores(broken: type[ToyStore]) -> None:
    class Broken(Stores):
        async def open(self) -> Store:
            self.toy = getattr(self, "toy", None) or broken(self.clock)
            return self.toy

    with pytest.raises(BaseException) as found:
        run_histories(Broken, 500, seeded=True)
    assert "Divergence" in repr(found.value) or isinstance(found.value, Divergence)


def test_only_the_contract_needs_pytest() -> None:
    names = "t.Model, t.interleave, t.ManualClock, t.inline"
    code = f"import sys, holdfast.testing as t; {names}; print('pytest' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    assert told.stdout.strip() == "False"
