"""The run of folders that are taken away must betray a store that does not look."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.history import Acknowledged, Attempted, Claimed, Event, Refused, Settled
from chaos.identity.hurting import KINDS, Fault, Hurting, make_other
from chaos.identity.judging import judge
from chaos.runs.identity import at_rest
from chaos.verdict import Verdict
from holdfast.stores.log.folder.identity import Identity

TEXT = "the store at /x was moved, removed or replaced while it was open (lock is not there any more)"
REFUSED = Refused(1.2, 1.5, "append", "Unavailable", TEXT, ["p/1"])
SENT = (Attempted(1.3, "p/2", 1, 0), Acknowledged(1.4, "p/2", "b"))


def judged(*events: Event) -> str:
    verdict = Verdict()
    judge(verdict, {"p": list(events)}, [Fault("moved", 1.0, 2.0)])
    return " ".join(verdict.failures)


def test_a_refusal_with_the_reason_is_what_should_be() -> None:
    assert judged(REFUSED) == ""


def test_what_began_before_or_ended_after_may_be_answered() -> None:
    before = Attempted(0.9, "p/2", 1, 0), Acknowledged(1.4, "p/2", "b")
    after = Attempted(1.3, "p/3", 1, 0), Acknowledged(2.1, "p/3", "c")
    claim = Claimed(1.05, 1.06, "b", "t", 1, 3, 10.0, False, "p/2", 1)  # a moment later: it promises nothing
    assert judged(REFUSED, *before, *after, claim) == ""


@pytest.mark.parametrize(
    ("events", "words"),
    [
        (SENT, "never felt"),
        ((REFUSED, *SENT), "an enqueue of p/2 while it was moved"),
        ((REFUSED, Settled(1.3, 1.4, "b", "t", "complete", "ok")), "a settlement of b"),
        ((REFUSED, Claimed(1.3, 1.4, "b", "t", 1, 3, 10.0, False, "p/2", 1)), "a claim of b"),
        ((REFUSED, Refused(1.2, 1.5, "claim", "Damaged", "its bytes are gone", [])), "another kind: Damaged"),
        ((REFUSED, Refused(1.2, 1.5, "claim", "Unavailable", "try again", [])), "another kind"),
    ],
)
def test_each_wrong_answer_is_found_out(events: tuple[Event, ...], words: str) -> None:
    assert words in judged(*events)


@pytest.fixture(scope="module")
def pattern(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pattern") / "store"
    make_other(folder)
    return folder


@pytest.mark.parametrize("kind", KINDS)
async def test_a_store_that_does_not_look_is_found_out(
    tmp_path: Path, pattern: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdict = Verdict()
    with monkeypatch.context() as patch:
        patch.setattr(Identity, "check", lambda self: None)
        await at_rest(verdict, kind, Hurting(tmp_path / "store", pattern=pattern))
    assert f"was answered at rest while the folder was {kind}" in " ".join(verdict.failures)
