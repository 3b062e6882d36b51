"""Alert rules ask for nothing that Holdfast does not tell, and each says what to do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from tests import ROOT
from tests.deploy.queries import ANYWHERE, asked, is_balanced, told

FOLDER = ROOT / "deploy" / "prometheus"
DURATION = re.compile(r"\d+[smhd]")


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_rules_ask_for_real_metrics_and_labels(tmp_path: Path) -> None:
    real = told(tmp_path) | {"up": {"job", "instance"}}
    for rule in rules():
        assert is_balanced(rule["expr"]), rule["expr"]
        wanted = asked(rule["expr"])
        assert wanted
        for name, labels in wanted.items():
            assert name in real, (rule["alert"], name)
            assert labels - ANYWHERE <= real[name], (rule["alert"], name, labels)


def test_states_in_rules_are_states() -> None:
    from holdfast.metrics import STATES

    for rule in rules():
        for metric, state in re.findall(r'(holdfast_\w+)\{state="(\w+)"\}', rule["expr"]):
            assert state in (STATES if metric == "holdfast_queue_messages" else ("busy", "idle"))


def test_every_rule_is_whole() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names) >= 10
    for rule in rules():
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert DURATION.fullmatch(rule.get("for", "1m"))
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert set(rule["annotations"]) == {"summary", "description"}
        labels = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
        kept = {label for found in asked(rule["expr"]).values() for label in found} | ANYWHERE
        assert labels <= kept, (rule["alert"], labels)


def test_the_example_loads_the_rules() -> None:
    found = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    assert found["rule_files"] == ["alerts.yml"]
    assert all(job["job_name"].startswith("holdfast") for job in found["scrape_configs"])
