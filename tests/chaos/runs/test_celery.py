"""The run on Celery must betray lost, wrong and repeated tasks; its short form runs with the others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("celery", reason="the extra celery is not installed")

from chaos.celery.notes import Kill, Note
from chaos.celery.sending import Load, Results
from chaos.celery.site import Site
from chaos.runs.celery import _judge
from chaos.verdict import Verdict

CHILD, OTHER, MAIN = 11, 12, 10


class Story:
    """Of one task, `long/0`, and what is noted of it; it ends well unless the test says otherwise."""

    def __init__(self, folder: Path) -> None:
        self.site = Site(folder, lease=1.0, concurrency=1, is_late=True)
        self.site.kills.append(Kill(99, 5.0, is_main=False))
        self.load = Load(self.site.app, work=0.0, long=2.0, seed=1)
        self.load.sent["id"] = ("long/0", "long/0")
        self.load.long.append("long/0")
        self.results = Results(self.site.app)
        self.results.found["id"] = {"status": "SUCCESS", "result": "long/0"}
        self.ran("other", 99, 4.0, None)  # which the kill has hit

    def ran(self, key: str, pid: int, begun: float, ended: float | None) -> None:
        with (self.site.notes.folder / str(pid)).open("ab") as file:
            for kind, at in (("start", begun), ("end", ended)):
                if at is not None:
                    file.write(msgspec.json.encode(Note(kind, key, at, pid, MAIN)) + b"\n")

    def judged(self, left: int = 0) -> Verdict:
        verdict = Verdict()
        self.site.notes.look()
        _judge(verdict, self.site, self.load, self.results, left)
        return verdict


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    made = Story(tmp_path / "run")
    with made.site:
        yield made


def test_what_ran_once_and_has_its_result_is_fine(story: Story) -> None:
    story.ran("long/0", CHILD, 1.0, 2.0)
    verdict = story.judged()
    assert verdict.valid, verdict
    assert verdict.effective_kills == 1


def test_a_result_that_is_missing_wrong_or_a_failure_is_found_out(story: Story) -> None:
    story.ran("long/0", CHILD, 1.0, 2.0)
    story.results.found["id"] = {"status": "SUCCESS", "result": "other"}
    assert story.judged().unexpected == 1
    story.results.found["id"] = {"status": "FAILURE", "result": "long/0"}
    assert story.judged().unexpected == 1
    del story.results.found["id"]
    assert story.judged().lost == 1
    assert story.judged(left=3).unfinished == 3


def test_a_task_that_ran_twice_without_a_kill_is_found_out(story: Story) -> None:
    story.ran("long/0", CHILD, 1.0, 2.0)
    story.ran("long/0", OTHER, 1.5, 2.0)
    assert story.judged().early_steals == 1


@pytest.mark.parametrize("kill", [Kill(CHILD, 1.5, is_main=False), Kill(MAIN, 2.5, is_main=True)])
def test_one_that_a_kill_has_hit_may_run_again(story: Story, kill: Kill) -> None:
    story.ran("long/0", CHILD, 1.0, 2.0)
    story.ran("long/0", OTHER, 3.0, 4.0)
    story.ran("long/1", OTHER, 20.0, 21.0)
    story.load.long.append("long/1")
    story.site.kills.append(kill)
    assert story.judged().valid


def test_a_try_may_be_there_twice_when_the_one_before_was_hit(story: Story) -> None:
    story.ran("long/0", CHILD, 1.0, 2.0)
    for number, pid in enumerate((CHILD, OTHER)):
        story.ran("retried/0#1", pid, 20.0 + number, 20.5 + number)
    assert story.judged().early_steals == 1
    story.ran("retried/0#0", CHILD + 5, 4.9, None)
    story.site.kills.append(Kill(CHILD + 5, 5.0, is_main=False))
    assert story.judged().early_steals == 0


def test_a_run_in_which_every_kill_missed_shows_nothing(story: Story) -> None:
    story.ran("long/0", CHILD, 1.0, 2.0)
    story.site.kills[:] = [Kill(77, 1.0, is_main=False)]
    assert "no kill has hit a task" in story.judged().failures
