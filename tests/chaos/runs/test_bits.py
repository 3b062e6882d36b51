"""The run of damaged objects must betray a store that does not verify what it reads."""

from __future__ import annotations

import pytest

from chaos.bits.judging import judge
from chaos.bits.spoiling import WAYS, spoiled
from chaos.bits.story import Found, Kept
from chaos.runs.bits import bits
from chaos.settings import Settings
from holdfast.stores.log import sums

KEPT = Kept(
    waiting={"a": "1"}, finished={"b": "2"}, dead={"c": "3"}, results={"b": "r"}, remembered="a", schedules=["s 1"]
)


def found(**more: object) -> Found:
    whole = Found(
        delivered=[("a", "1")],
        dead={"c": ("3", "enough")},
        archived={"b": ("2", "r", "")},
        remembered="a",
        schedules=["s 1"],
        goes_on=True,
    )
    for name, value in more.items():
        setattr(whole, name, value)
    return whole


def test_what_is_whole_shows_nothing() -> None:
    judged = judge(KEPT, found(), "block")
    assert (judged.effective, judged.said, judged.wrong) == (False, False, [])


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"delivered": [("a", "x")]}, "delivered as 'x'"),
        ({"delivered": [("a", "1"), ("a", "1")]}, "twice"),
        ({"delivered": [("a", "1"), ("b", "2")]}, "had ended"),
        ({"delivered": []}, "neither delivered nor dead"),
        ({"archived": {"b": ("x", "r", "")}}, "archived as 'x'"),
        ({"archived": {"b": ("2", None, "")}}, "result of b"),
        ({"dead": {"c": ("x", "enough")}}, "dead as 'x'"),
        ({"goes_on": False}, "does not go on"),
    ],
)
def test_each_wrong_outcome_is_found_out(more: dict[str, object], words: str) -> None:
    judged = judge(KEPT, found(**more), "block")
    assert judged.effective
    assert words in " ".join(judged.wrong)


def test_what_is_lost_must_be_said() -> None:
    assert judge(KEPT, found(archived={}), "archive file").silent
    assert not judge(KEPT, found(archived={}, errors=["Damaged: …"]), "archive file").silent
    assert judge(KEPT, found(archived={}, errors=["Unavailable: not in time"]), "archive file").silent
    died = found(delivered=[], dead={"c": ("3", "enough"), "a": (None, "the object … is damaged")})
    assert (judge(KEPT, died, "block").silent, judge(KEPT, died, "block").wrong) == (False, [])


def test_a_schedule_that_is_gone_must_be_said() -> None:
    assert judge(KEPT, found(schedules=[]), "schedule").silent
    assert not judge(KEPT, found(schedules=[], errors=["Damaged: …"]), "schedule").silent


def test_every_way_changes_the_bytes() -> None:
    import random

    made = {way: spoiled(b"abc" * 500, way, random.Random(1), b"other") for way in WAYS}
    assert made["delete"] is None
    assert made["swap"] == b"other"
    assert len({*made.values()}) == len(WAYS)


@pytest.mark.timeout(300)
async def test_a_store_that_does_not_verify_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def trusting(self: sums.Sums, key: str, data: bytes) -> bytes:
        at = sums._place(key, data, len(data) - 8)
        return data[:at] + data[at + 8 :] if sums.is_sealed(key, data) else data

    monkeypatch.setattr(sums.Sums, "opened", trusting)
    verdict = await bits(Settings(store="file", stops=6, quiet=True, fault="block"))
    assert not verdict.valid
    assert "was delivered as" in " ".join(verdict.failures)
