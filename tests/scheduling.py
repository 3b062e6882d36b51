"""Which test runs when, and in which process, when several run them (`pytest -n 8`)."""

from __future__ import annotations

import pytest
from xdist.scheduler import LoadScopeScheduling

_LONG = 180  # seconds; who may take so long begins early, for the others not to wait for it at the end
_SESSIONS = ("tests/spark/jobs/", "tests/spark/")  # two of them: with one, all others are done long before it


def _session(nodeid: str) -> str | None:
    """The Spark session in which it works; None: in none."""
    return next((folder for folder in _SESSIONS if nodeid.startswith(folder)), None)


class TogetherOnSpark(LoadScopeScheduling):
    """Whoever is free takes the next test, but those of one Spark session stay together, with one Java, begun first."""

    def _split_scope(self, nodeid: str) -> str:
        return _session(nodeid) or nodeid


def _precedence(item: pytest.Item) -> float:
    """Seconds that a long test may take; 0 for all others."""
    marker = item.get_closest_marker("timeout")
    seconds = float(marker.args[0]) if marker is not None else 0.0
    return seconds if seconds >= _LONG and _session(item.nodeid) is None else 0.0


def longest_first(items: list[pytest.Item]) -> None:
    """The rest stays in its order, in which tests that share a server are neighbours."""
    items.sort(key=_precedence, reverse=True)
