"""The checker on histories written by hand: every kind of breach is found, and doubt excuses only what it must."""

import pytest

from chaos.checker import BREACHES, check
from chaos.history import (
    RAISED,
    Acknowledged,
    Asked,
    Attempted,
    Claimed,
    Event,
    Extended,
    Found,
    History,
    Refused,
    Settled,
)
from chaos.recorder import Recorder
from chaos.verdict import DECIDING, Verdict
from holdfast.errors import Unavailable
from holdfast.stores.records import Settlement

KEY = "p0/1"
SENT = [("p0", Attempted(0.0, KEY, 1, 0)), ("p0", Acknowledged(0.1, KEY, "a"))]
FOUND = ("audit", Found("a", KEY, 1, "completed", 1))


def claimed(process: str, token: str, attempt: int, begun: float, *, key: str = KEY, check: int = 1, of: int = 3):
    return process, Claimed(begun, begun + 0.1, "a", token, attempt, of, 10.0, attempt > 1, key, check)


def settled(process: str, token: str, at: float, action: str = "complete", answer: str = "ok"):
    return process, Settled(at, at + 0.1, "a", token, action, answer)


def asked(process: str, token: str, at: float, action: str = "release"):
    return process, Asked(at, "a", token, action)


FIRST, DONE = claimed("w0", "t1", 1, 1.0), settled("w0", "t1", 2.0)

BAD: dict[str, tuple[str, list[tuple[str, Event]]]] = {
    "acknowledged and gone": ("lost", SENT),
    "completed and gone": ("lost", [SENT[0], FIRST, DONE]),
    "nobody sent it": ("unexpected", [FOUND]),
    "other bytes": ("unexpected", [*SENT, claimed("w0", "t1", 1, 1.0, check=2), DONE, FOUND]),
    "one attempt, two messages": ("unexpected", [*SENT, FOUND, ("audit", Found("b", KEY, 1, "completed", 1))]),
    "still waiting": ("unfinished", [*SENT, ("audit", Found("a", KEY, 1, "pending", 0))]),
    "still held": ("unfinished", [*SENT, FIRST, ("audit", Found("a", KEY, 1, "processing", 1))]),
    "completed twice": (
        "duplicate_completions",
        [*SENT, FIRST, claimed("w1", "t2", 2, 20.0), settled("w1", "t2", 21.0), settled("w0", "t1", 22.0), FOUND],
    ),
    "two records": ("duplicate_completions", [*SENT, FIRST, DONE, FOUND, FOUND]),
    "completed and dead": ("duplicate_completions", [*SENT, FIRST, DONE, ("audit", Found("a", KEY, 1, "dead", 1))]),
    "completed by an old token": (
        "zombie_completions",
        [*SENT, FIRST, claimed("w1", "t2", 2, 20.0), settled("w0", "t1", 21.0), FOUND],
    ),
    "claimed after its end": ("zombie_completions", [*SENT, FIRST, DONE, claimed("w1", "t2", 2, 20.0), FOUND]),
    "retry by an old token": (
        "zombie_completions",
        [*SENT, FIRST, claimed("w1", "t2", 2, 20.0), settled("w0", "t1", 21.0, "retry"), FOUND],
    ),
    "claimed while held": ("early_steals", [*SENT, FIRST, claimed("w1", "t2", 2, 10.8), FOUND]),
    "claimed while extended": (
        "early_steals",
        [*SENT, FIRST, ("w0", Extended(9.0, 9.1, "a", "t1", 10.0, True)), claimed("w1", "t2", 2, 15.0), FOUND],
    ),
    "one number for two": ("miscounted_attempts", [*SENT, FIRST, claimed("w1", "t2", 1, 20.0), FOUND]),
    "beyond the maximum": ("miscounted_attempts", [*SENT, claimed("w0", "t1", 4, 1.0), FOUND]),
    "a release of another attempt": (
        "miscounted_attempts",
        [
            *SENT, FIRST, settled("w0", "t1", 2.0, "release"), claimed("w1", "t2", 1, 3.0),
            claimed("w2", "t3", 2, 20.0), claimed("w3", "t4", 2, 40.0), FOUND,
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_breach_is_found(name: str) -> None:
    count, events = BAD[name]
    verdict = check(events)
    assert getattr(verdict, count) > 0, verdict
    assert verdict.examples[count]
    assert not verdict.valid


def test_every_kind_of_breach_has_its_story() -> None:
    assert {count for count, _ in BAD.values()} == set(BREACHES) == set(DECIDING)


# ---------------------------------------------------------------------- releases and retries that nobody heard of


def after_kill(*events: tuple[str, Event]) -> Verdict:
    """The first holder asks for something and is never heard of again."""
    return check([*SENT, FIRST, *events, settled("w1", "t2", 90.0), FOUND])


def test_an_unheard_release_may_have_been_done() -> None:
    assert after_kill(asked("w0", "t1", 2.0), claimed("w1", "t2", 1, 3.0)).valid


def test_an_unheard_release_may_not_have_been_done() -> None:
    assert after_kill(asked("w0", "t1", 2.0), claimed("w1", "t2", 2, 12.0)).valid


def test_an_unheard_release_that_was_not_done_leaves_the_lease_alive() -> None:
    """The number went on, so the attempt was not given back, and the lease was taken from a holder that had it."""
    assert after_kill(asked("w0", "t1", 2.0), claimed("w1", "t2", 2, 3.0)).early_steals == 1


def test_an_unheard_release_excuses_one_claim_only() -> None:
    verdict = after_kill(asked("w0", "t1", 2.0), claimed("w1", "t2", 1, 3.0), claimed("w2", "t3", 1, 20.0))
    assert verdict.miscounted_attempts == 1


def test_an_unheard_retry_may_have_been_done() -> None:
    assert after_kill(asked("w0", "t1", 2.0, "retry"), claimed("w1", "t2", 2, 3.0)).valid
    verdict = after_kill(asked("w0", "t1", 2.0, "retry"), claimed("w1", "t2", 1, 3.0))
    assert (verdict.early_steals, verdict.miscounted_attempts) == (1, 1), "a retry gives no attempt back"


def test_a_claim_before_the_unheard_release_was_asked_for_is_stolen() -> None:
    assert after_kill(asked("w0", "t1", 5.0), claimed("w1", "t2", 1, 3.0)).early_steals == 1


def test_a_refused_release_excuses_nothing() -> None:
    refused = [asked("w0", "t1", 2.0), settled("w0", "t1", 2.0, "release", "lost")]
    verdict = after_kill(*refused, claimed("w1", "t2", 1, 3.0))
    assert (verdict.early_steals, verdict.miscounted_attempts, verdict.refused) == (1, 1, 1)


def test_a_release_that_raised_is_in_doubt() -> None:
    raised = [asked("w0", "t1", 2.0), settled("w0", "t1", 2.0, "release", RAISED)]
    verdict = after_kill(*raised, claimed("w1", "t2", 1, 3.0))
    assert verdict.valid
    assert verdict.refused == 0


async def test_the_recorder_notes_what_was_asked_before_and_that_it_raised_after() -> None:
    class Away:
        async def settle(self, queue: str, settlements: object) -> list[str]:
            raise Unavailable("away")

    history = History()
    recorder = Recorder(Away(), history, clock=lambda: 1.0)  # type: ignore[arg-type]  # only what is asked of it
    wanted = [Settlement("a", "t1", "release"), Settlement("b", "t2", "complete")]
    with pytest.raises(Unavailable):
        await recorder.settle("q", wanted)
    assert history.events == [
        Asked(1.0, "a", "t1", "release"),
        Refused(1.0, 1.0, "settle", "Unavailable", "away", []),
        Settled(1.0, 1.0, "a", "t1", "release", RAISED),
        Settled(1.0, 1.0, "b", "t2", "complete", RAISED),
    ]
