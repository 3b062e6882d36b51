"""What a report says first: from figures to problems, by tables."""

from __future__ import annotations

import pytest

from holdfast.spark.report.figures import Before, Figures, QueueFigures, Reason
from holdfast.spark.report.findings import Finding, findings, heading
from holdfast.spark.report.periods import Period
from holdfast.spark.report.present import Present, QueueNow, StreamNow

NOW = 100_000.0


def figures(
    *,
    now: Present | None = None,
    queues: tuple[QueueFigures, ...] = (),
    reasons: tuple[Reason, ...] = (),
    p95: float = 0,
) -> Figures:
    before = [Before("q", 500, 500, 500, 0, 0, 0, 0.1, p95, p95)] if p95 else []
    return Figures(
        lake="/lake",
        version=1,
        made_at=NOW,
        period=Period(NOW - 3600, NOW, 60),
        before_is_whole=bool(p95),
        present=now or Present(),
        queues=list(queues),
        reasons=list(reasons),
        before=before,
    )


def queue(
    *, ready: int = 0, running: int = 0, oldest: float | None = None, paused: bool = False, unseen: int = 0
) -> Present:
    one = QueueNow("q", paused, ready, 0, running, 0, 0, oldest, NOW - 7201, unseen)
    return Present(store="file:///s", at=NOW, queues=[one])


def stream(*, owner: str = "", claimed: int = 0, tries: int = 1) -> Present:
    return Present(store="file:///s", at=NOW, streams=[StreamNow("q", "etl", owner, claimed, 5, tries)])


def ended(*, arrived: int = 500, left: int = 0, retried: int = 0, failed: int = 0, p95: float = 0.2) -> QueueFigures:
    return QueueFigures("q", arrived, 500, 500, failed, 0, retried, 500, 0.1, 1.0, 0, left, 0.1, p95)


def death(count: int, name: str) -> Reason:
    return Reason(name, "q", "dead", "E", f"E: {name}", count, 0, NOW - 60, NOW - 30, "id", "w", 3, "E")


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (figures(), []),
        (figures(now=queue(ready=5, oldest=61.0)), ["bad q: nobody works on it"]),
        (figures(now=queue(ready=5, oldest=3.0)), []),
        (figures(now=queue(ready=5, oldest=61.0, running=1)), []),
        (figures(now=queue(ready=5, oldest=61.0, paused=True)), ["warn q: paused"]),
        (figures(now=queue(unseen=3)), ["warn q: the lake is behind"]),
        (figures(now=stream(claimed=9)), ["bad q: stream etl has no owner"]),
        (figures(now=stream(claimed=9, owner="host:1", tries=2)), ["warn q: stream etl is on try 2 of a batch"]),
        (figures(now=stream(claimed=9, owner="host:1")), []),
        (figures(queues=(ended(left=99),)), []),
        (figures(queues=(ended(left=100),)), ["warn q: the backlog grew"]),
        (figures(queues=(ended(arrived=2000, left=150),)), []),
        (figures(queues=(ended(retried=100),)), ["warn q: many retries"]),
        (figures(queues=(ended(failed=1),)), ["warn 1 message failed"]),
        (figures(queues=(ended(p95=9.0),), p95=4.0), ["warn q: slower"]),
        (figures(queues=(ended(p95=9.0),)), []),
        (figures(reasons=(death(3, "a"),)), ["bad q: 3 dead letters"]),
        (
            figures(reasons=tuple(death(9 - n, f"r{n}") for n in range(5))),
            [
                "bad q: 9 dead letters",
                "bad q: 8 dead letters",
                "bad q: 7 dead letters",
                "warn 2 other reasons of death",
            ],
        ),
    ],
)
def test_what_is_said(made: Figures, said: list[str]) -> None:
    assert [f"{one.tone} {one.what}" for one in findings(made)] == said


def test_problems_come_before_what_is_to_be_watched() -> None:
    found = findings(figures(queues=(ended(retried=100),), now=stream(claimed=9)))
    assert [one.tone for one in found] == ["bad", "warn"]


@pytest.mark.parametrize(
    ("tones", "said"),
    [
        ((), "Nothing to worry about"),
        (("bad",), "1 problem"),
        (("bad", "bad", "warn"), "2 problems, 1 thing to watch"),
        (("warn", "warn"), "2 things to watch"),
    ],
)
def test_the_heading_is_the_answer(tones: tuple[str, ...], said: str) -> None:
    assert heading([Finding(tone, "", "") for tone in tones]) == said  # type: ignore[arg-type]  # both are tones
