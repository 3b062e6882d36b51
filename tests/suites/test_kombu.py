"""kombu's own integration tests, unchanged: on a folder as part of `make test`, on every store by `make suites`."""

from __future__ import annotations

import importlib.util
from typing import Any

import kombu
import pytest

from tests.suites.running import source


def _common() -> Any:
    spec = importlib.util.spec_from_file_location("kombu_common", source("kombu") / "t" / "integration" / "common.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


common = _common()
pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def connection(url: str) -> kombu.Connection:
    return kombu.Connection(url)


@pytest.fixture
def invalid_connection() -> kombu.Connection:
    return kombu.Connection("holdfast+nats://127.0.0.1:1?connect_timeout=0.2")


class TestBasicFunctionality(common.BasicFunctionality):
    """Connecting, publishing, consuming."""


class TestExchangeTypes(common.BaseExchangeTypes):
    """Direct, fanout, topic."""


class TestTimeToLive(common.BaseTimeToLive):
    """Messages that expire."""


class TestPriority(common.BasePriority):
    """Higher numbers first."""

    PRIORITY_ORDER = "asc"


class TestMessage(common.BaseMessage):
    """Acknowledging, rejecting, requeueing."""


class TestEventLoop(common.BaseEventLoop):
    """An event loop of kombu, and acknowledgements of other threads."""
