"""kombu's own integration tests, unchanged, on every kind of store; `make suites` downloads them."""

from __future__ import annotations

import importlib.util
from typing import Any

import kombu
import pytest

from tests import ROOT

FOUND = sorted((ROOT / "build" / "suites").glob("kombu-*/t/integration/common.py"))
if not FOUND:
    pytest.skip("make suites downloads it", allow_module_level=True)


def _common() -> Any:
    spec = importlib.util.spec_from_file_location("kombu_common", FOUND[-1])
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
