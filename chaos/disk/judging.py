"""What a run on a full disk must show, from its histories."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ..history import Acknowledged, Event, Found, Refused, Settled
from ..verdict import EXAMPLES, Verdict

# What a person needs to read in the error: ours, and what the system, SQLite and SlateDB say of a limit.
_REASONS = ("full", "File too large", "disk I/O error", "wal unavailable")


class Full(msgspec.Struct):
    """One time: when it began and when it was over."""

    begun: float
    freed: float = float("inf")


def judge(
    verdict: Verdict,
    histories: dict[str, list[Event]],
    times: list[Full],
    *,
    deadline: float,
    refused_is_nothing: bool,
) -> None:
    """`refused_is_nothing`: an append that failed has added nothing, unless it said that it does not know."""
    events = [event for history in histories.values() for event in history]
    refused = [event for event in events if isinstance(event, Refused)]
    hit = [full for full in times if any(full.begun <= each.at <= full.freed for each in refused)]
    verdict.notes |= {
        "times full": len(times),
        "times full that hit a call": len(hit),
        "calls refused": len(refused),
        "slowest refusal, seconds": round(max((each.at - each.begun for each in _prompt(refused)), default=0.0), 2),
        "first acknowledgement after, seconds at most": _most(_waits(times, _acknowledged(events))),
        "first completion after, seconds at most": _most(_waits(times, _completed(events))),
    }
    for number, text in enumerate(sorted({each.text for each in refused})[:EXAMPLES], 1):
        verdict.notes[f"error {number}"] = text
    verdict.expect(len(hit) > 0, "the full disk was never felt: the run shows nothing")
    _expect_none(verdict, "not Unavailable", [f"{e.error}: {e.text}" for e in refused if e.error != "Unavailable"])
    _expect_none(verdict, "without a reason", [e.text for e in refused if not _says_why(e)])
    late = [f"{e.call} {e.at - e.begun:.1f} s" for e in _prompt(refused) if e.at - e.begun > deadline + 1.0]
    _expect_none(verdict, "after the deadline", late)
    if refused_is_nothing:
        there = {event.key for event in events if isinstance(event, Found)}
        told = [key for e in refused if "unknown" not in e.text for key in e.keys if key in there]
        _expect_none(verdict, "that took effect", told)


def _prompt(refused: list[Refused]) -> Iterator[Refused]:
    """Claims may wait for messages before they are refused."""
    return (each for each in refused if each.call != "claim")


def _says_why(refused: Refused) -> bool:
    return any(reason in refused.text for reason in _REASONS)


def _expect_none(verdict: Verdict, what: str, found: list[str]) -> None:
    verdict.expect(not found, f"{len(found)} refusals {what}: {'; '.join(sorted(set(found))[:EXAMPLES])}")


def _acknowledged(events: list[Event]) -> list[float]:
    return [event.at for event in events if isinstance(event, Acknowledged)]


def _completed(events: list[Event]) -> list[float]:
    return [event.at for event in events if isinstance(event, Settled) and event.answer == "ok"]


def _waits(times: list[Full], instants: list[float]) -> list[float]:
    """From every time it was freed to the next instant."""
    return [min((at - full.freed for at in instants if at > full.freed), default=-1.0) for full in times]


def _most(waits: list[float]) -> float:
    return round(max(waits, default=0.0), 2)
