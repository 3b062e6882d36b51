"""The dashboard asks for nothing that Holdfast does not tell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import ROOT
from tests.deploy.queries import ANYWHERE, asked, is_balanced, told

BOARDS = sorted((ROOT / "deploy" / "grafana").glob("*.json"))


def test_there_is_a_dashboard() -> None:
    assert [path.name for path in BOARDS] == ["holdfast.json"]


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.name)
def test_panels_ask_for_real_metrics_and_labels(path: Path, tmp_path: Path) -> None:
    real = told(tmp_path)
    board = json.loads(path.read_text())
    used: set[str] = set()
    for panel in board["panels"]:
        assert panel["title"]
        assert panel["targets"]
        for target in panel["targets"]:
            assert is_balanced(target["expr"]), target["expr"]
            for name, labels in asked(target["expr"]).items():
                assert name in real, (panel["title"], name)
                assert labels - ANYWHERE <= real[name], (panel["title"], name, labels)
                used.add(name)
    families = {name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count") for name in used}
    known = {name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count") for name in real}
    assert {name for name in known if name.startswith("holdfast_") and not name.endswith("_created")} == families


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.name)
def test_panels_have_ids_and_places_of_their_own(path: Path) -> None:
    board = json.loads(path.read_text())
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells
    names = {each["name"] for each in board["templating"]["list"]}
    assert names == {"datasource", "queue"}
