"""What a query asks Prometheus for: metrics, and labels of each; and what Holdfast really tells."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

import holdfast
from holdfast.metrics import Metrics
from tests.server.fixtures import Http
from tests.servers.serving import ServerThread

SELECTOR = re.compile(r"\b(holdfast_\w+|up)\b(?:\{([^}]*)\})?")
GROUPING = re.compile(r"\bby \(([\w, ]+)\)")
ANYWHERE = {"instance", "job", "le"}


def asked(query: str) -> dict[str, set[str]]:
    """The metrics of a query, each with the labels that it is chosen or grouped by."""
    grouped = {label.strip() for labels in GROUPING.findall(query) for label in labels.split(",")}
    return {
        name: grouped | set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", labels)) for name, labels in SELECTOR.findall(query)
    }


def is_balanced(query: str) -> bool:
    open_ones: list[str] = []
    pairs = {")": "(", "]": "[", "}": "{"}
    for each in re.sub(r'"[^"]*"', "", query):
        if each in pairs.values():
            open_ones.append(each)
        elif each in pairs and (not open_ones or open_ones.pop() != pairs[each]):
            return False
    return not open_ones


def told(folder: Path) -> dict[str, set[str]]:
    """Every sample of a server and of a process whose store has seen something of everything, with its labels."""
    url = f"file://{folder}/store"
    with holdfast.sync.connect(url) as broker:
        metrics = Metrics(broker.core)
        jobs = broker.queue("jobs", retry=holdfast.Fixed(0))
        jobs.enqueue_many(range(4))
        one, two, three = jobs.dequeue_many(3)
        one.complete()
        two.fail("again")
        three.kill("never")
        found = _labels(metrics.text().decode())
    with ServerThread(url) as server:
        with holdfast.sync.connect(server.address) as client:
            client.queue("jobs").enqueue(1)
        answer = Http(server.address).get("/metrics")
    found |= _labels(answer.body.decode())
    # What did not happen has no sample yet, and the labels of its like.
    for name in ("messages_recovered", "leases_lost", "schedule_slots_fired", "schedule_slots_missed"):
        found[f"holdfast_{name}_total"] = {"queue"}
        assert f"# TYPE holdfast_{name}_total counter" in answer.body.decode()
    found["holdfast_store_requests_total"] = {"kind"}
    assert "# TYPE holdfast_store_requests_total counter" in answer.body.decode()
    return found


def _labels(text: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found
