"""Which test runs when, and in which process, when several run them (`pytest -n 4`)."""

from __future__ import annotations

import pytest
from xdist.scheduler import LoadScopeScheduling

_LONG = 180  # seconds; who may take so long begins early, for the others not to wait for it at the end


def _shares_spark(nodeid: str) -> bool:
    """Whether it works in the session that a process has once."""
    return nodeid.startswith("tests/spark/")


class OneSpark(LoadScopeScheduling):
    """Whoever is free takes the next test, but those on Spark stay together: one Java for all of them, begun first."""

    def _split_scope(self, nodeid: str) -> str:
        return "spark" if _shares_spark(nodeid) else nodeid


def _precedence(item: pytest.Item) -> float:
    """Seconds that a long test may take; 0 for all others."""
    marker = item.get_closest_marker("timeout")
    seconds = float(marker.args[0]) if marker is not None else 0.0
    return seconds if seconds >= _LONG and not _shares_spark(item.nodeid) else 0.0


def longest_first(items: list[pytest.Item]) -> None:
    """The rest stays in its order, in which tests that share a server are neighbours."""
    items.sort(key=_precedence, reverse=True)
