"""A short form of every fault run, so that none of them rots; and the checker on histories written by hand."""

from pathlib import Path

import pytest

from chaos.__main__ import chosen, main, parser, settings_of
from chaos.checker import check
from chaos.history import (
    Acknowledged,
    Attempted,
    Claimed,
    Event,
    Found,
    History,
    Killed,
    Settled,
    Started,
    read,
    read_folder,
)
from chaos.runs import RUNS
from chaos.verdict import Verdict, lines


def story(*events: tuple[str, Event]) -> Verdict:
    return check(events)


def sent(key: str, id: str, at: float = 0.0, check: int = 1) -> tuple[tuple[str, Event], tuple[str, Event]]:
    return ("p0", Attempted(at, key, check, 0)), ("p0", Acknowledged(at + 0.1, key, id))


def claimed(process: str, key: str, id: str, token: str, attempt: int, begun: float, lease: float = 10.0):
    return process, Claimed(begun, begun + 0.1, id, token, attempt, 3, lease, attempt > 1, key, 1)


def found(id: str, key: str, status: str = "completed") -> tuple[str, Event]:
    return "audit", Found(id, key, 1, status, 1)


def test_a_clean_story_is_valid() -> None:
    verdict = story(
        *sent("p0/1", "a"),
        claimed("w0", "p0/1", "a", "t1", 1, 1.0),
        ("w0", Started(1.2, "a", 1)),
        ("w0", Settled(1.3, 1.4, "a", "t1", "complete", "ok")),
        ("w0", Settled(1.5, 1.6, "a", "t1", "complete", "ok")),  # a repeat with the same token
        found("a", "p0/1"),
    )
    assert verdict.valid
    assert (verdict.acknowledged, verdict.completed) == (1, 1)
    assert "kill" not in lines(verdict)[0]


def test_attempted_and_not_acknowledged_may_be_there_or_not() -> None:
    attempt, _ = sent("p0/1", "a")
    assert story(attempt).valid
    assert story(attempt, found("a", "p0/1")).valid


def test_acknowledged_and_gone_is_lost() -> None:
    assert story(*sent("p0/1", "a")).lost == 1


def test_without_archive_an_accepted_completion_stands_for_the_message() -> None:
    events = [
        *sent("p0/1", "a"),
        claimed("w0", "p0/1", "a", "t1", 1, 1.0),
        ("w0", Settled(1.3, 1.4, "a", "t1", "complete", "ok")),
    ]
    assert check(events).lost == 1
    assert check(events, archive=False).lost == 0


def test_a_late_note_of_a_stopped_worker_is_no_zombie() -> None:
    verdict = story(
        *sent("p0/1", "a"),
        ("w0", Claimed(1.0, 60.0, "a", "t1", 1, 3, 10.0, False, "p0/1", 1)),  # stopped between answer and note
        claimed("w1", "p0/1", "a", "t2", 2, 20.0),
        ("w1", Settled(21.0, 21.1, "a", "t2", "complete", "ok")),
        ("w0", Settled(60.1, 60.2, "a", "t1", "complete", "lost")),
        found("a", "p0/1"),
    )
    assert verdict.valid, lines(verdict)
    assert verdict.refused == 1


def test_a_retry_accepted_before_the_next_claim_is_no_zombie() -> None:
    verdict = story(
        *sent("p0/1", "a"),
        claimed("w0", "p0/1", "a", "t1", 1, 1.0),
        ("w0", Settled(1.5, 1.6, "a", "t1", "retry", "ok")),
        claimed("w1", "p0/1", "a", "t2", 2, 2.0),
        ("w1", Settled(2.5, 2.6, "a", "t2", "complete", "ok")),
        found("a", "p0/1"),
    )
    assert verdict.valid, lines(verdict)


def test_kills_recovery_and_duplicate_executions() -> None:
    verdict = story(
        *sent("p0/1", "a"),
        claimed("w0", "p0/1", "a", "t1", 1, 1.0, lease=2.0),
        ("w0", Started(1.2, "a", 1)),
        ("conductor", Killed(1.5, "w0", "SIGKILL")),
        ("conductor", Killed(1.6, "w9", "SIGKILL")),  # held nothing
        claimed("w1", "p0/1", "a", "t2", 2, 3.4),
        ("w1", Started(3.5, "a", 2)),
        ("w1", Settled(3.6, 3.7, "a", "t2", "complete", "ok")),
        found("a", "p0/1"),
    )
    assert verdict.valid, lines(verdict)
    assert (verdict.kills, verdict.effective_kills, verdict.duplicate_executions) == (2, 1, 1)
    assert verdict.recovery.max == pytest.approx(2.0)


def test_completed_and_dead_is_a_contradiction() -> None:
    verdict = story(
        *sent("p0/1", "a"),
        claimed("w0", "p0/1", "a", "t1", 1, 1.0),
        ("w0", Settled(1.3, 1.4, "a", "t1", "complete", "ok")),
        found("a", "p0/1", "dead"),
    )
    assert verdict.duplicate_completions == 1


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "w0.jsonl"
    history = History(path)
    history.write(Started(1.0, "a", 1), Started(2.0, "b", 1))
    history.close()
    with path.open("ab") as file:
        file.write(b'["started",3.0,"c"')
    assert [event.id for event in read(path)] == ["a", "b"]
    assert list(read_folder(tmp_path)) == ["w0"]


def test_sizes_can_be_changed_on_the_command_line() -> None:
    arguments = parser().parse_args(["R1", "--short", "--messages", "7", "--lease", "3"])
    (run,) = chosen(arguments.run)
    settings = settings_of(arguments, run)
    assert (run.name, settings.messages, settings.lease, settings.kills) == ("kill", 7, 3.0, run.short.kills)
    with pytest.raises(SystemExit):
        chosen("nothing")


def test_an_invalid_run_exits_with_one(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    async def bad(settings: object) -> Verdict:
        return Verdict(run="kill", lost=1)

    monkeypatch.setattr("chaos.__main__.chosen", lambda name: [type(RUNS[0])("kill", "R1", bad, *[RUNS[0].short] * 2)])
    monkeypatch.setattr("sys.argv", ["chaos", "kill"])
    assert main() == 1
    assert "INVALID" in capsys.readouterr().out


def patient(run) -> object:
    """A JVM takes its time, and so do some hundred seeds."""
    is_long = "spark" in run.name or run.name == "simulate"
    return pytest.param(run, id=run.name, marks=pytest.mark.timeout(500 if is_long else 180))


@pytest.mark.parametrize("run", [patient(run) for run in RUNS])
async def test_short_form(run) -> None:
    verdict = await run.program(run.short)
    assert verdict.valid, "\n".join(lines(verdict))
    assert verdict.acknowledged > 0
