"""What `holdfast top` shows, without a terminal."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from holdfast.cli import top_view
from holdfast.cli.top_view import Look, View
from holdfast.config import QueueOptions
from holdfast.queue_reports import QueueReport
from holdfast.stores.records import Stats
from holdfast.stores.worker_reports import ProcessReport, RunningMessage, WorkerReport


def queue(name: str, *, paused: bool = False, **counts: int) -> QueueReport:
    return QueueReport(name, paused, datetime.now(UTC), QueueOptions(), Stats(**counts))


WORKER = WorkerReport(id="w1", queues=["a"], slots=4, busy=1, running=[RunningMessage("a", "id", 200.0)])
PROCESS = ProcessReport(id="0" * 32, host="web-1", pid=7, version="1", started_at=0.0, at=0.0, workers=[WORKER])


def shown(view: View, *queues: QueueReport, width: int = 80, height: int = 24, **more: object) -> list[str]:
    look = Look(1.0, list(queues), more.pop("processes", []))
    found = top_view.lines(view, look, top_view.rows(look, None), width=width, height=height, title="t", **more)
    return [text for text, _ in found]


def test_rates_are_differences_and_unknown_at_first() -> None:
    before = Look(10.0, [queue("a", pending=5, completed=10), queue("b", pending=9)], [])
    now = Look(12.0, [queue("a", pending=7, dead=1, completed=16), queue("b"), queue("c", pending=3)], [])
    found = {row.name: row for row in top_view.rows(now, before)}
    assert (found["a"].incoming, found["a"].outgoing) == (4.5, 3.0)
    assert found["b"].incoming == 0  # it was purged: nothing came
    assert found["c"].incoming is None
    assert {row.incoming for row in top_view.rows(now, None)} == {None}


def test_workers_are_counted_by_queue_or_unknown() -> None:
    assert [row.workers for row in top_view.rows(Look(0.0, [queue("a"), queue("b")], [PROCESS]), None)] == [1, 0]
    assert [row.workers for row in top_view.rows(Look(0.0, [queue("a")], None), None)] == [None]
    assert "workers are not reported here" in shown(View(), queue("a"), processes=None)[1]
    assert shown(View(), queue("a"), processes=None)[4].endswith(" ?")


@pytest.mark.parametrize(("width", "height"), [(80, 24), (80, 6), (40, 10), (200, 60), (20, 3)])
def test_lines_fit_the_terminal(width: int, height: int) -> None:
    queues = [queue(f"queue-{n}-{'x' * n}", paused=bool(n % 2), pending=10**n, dead=n) for n in range(15)]
    lines = shown(View(filter="q"), *queues, width=width, height=height, processes=[PROCESS] * 9, problem="away " * 50)
    assert len(lines) == height
    assert max(map(len, lines)) <= width


def test_a_problem_and_a_filter_are_said() -> None:
    assert shown(View(), problem="13:00:00 no answer\x1b[2J")[2] == "13:00:00 no answer\\x1b[2J"
    assert shown(View(filter="x", is_typing=True), queue("a"))[2] == "filter: x_"
    assert shown(View(filter="x"), queue("a"))[4] == "no queue has this in its name"
    assert shown(View())[4] == "no queues yet"


def test_workers_stand_below_the_queues_and_follow_the_filter() -> None:
    lines = shown(View(), queue("a"), processes=[PROCESS])
    assert any(line.startswith("w1 on web-1 pid 7") and "1/4" in line and "3m" in line for line in lines)
    assert not any("w1" in line for line in shown(View(filter="b"), queue("b"), processes=[PROCESS]))


def test_keys_move_and_sort() -> None:
    view = View()
    assert [view.pressed(key).sort for key in "nrdoiuw"] == [
        "name", "pending", "dead", "oldest", "incoming", "outgoing", "workers",
    ]  # fmt: skip
    assert view.pressed("left").sort == "workers"
    assert view.pressed("right").sort == "pending"
    assert view.pressed("down").pressed("j").pressed("k").top == 1
    assert view.pressed("up").top == 0
    assert view.pressed("x") == view
    assert view.pressed("q").is_over
    assert view.pressed("/").pressed("q").pressed("backspace").pressed("é").pressed("enter") == View(filter="é")
    assert view.pressed("/").pressed("a").pressed("ctrl-c").is_over
    assert View(filter="a").pressed("escape").filter == ""


def test_scrolling_ends_with_the_last_row() -> None:
    queues = [queue(f"q{n:02}") for n in range(50)]
    lines = shown(View(top=1000), *queues, height=10)
    assert [line.split()[0] for line in lines[4:9]] == ["q45", "q46", "q47", "q48", "q49"]


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0"), (99_999, "99999"), (123_456, "123k"), (1_234_567, "1.23M"), (10**12, "1000G")]
)
def test_counts_are_short(count: int, text: str) -> None:
    assert top_view.short(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "-"), (0.4, "0s"), (119, "119s"), (150, "2m"), (7200, "2h"), (200_000, "2d")]
)
def test_ages_are_short(seconds: float | None, text: str) -> None:
    assert top_view.age(seconds) == text
