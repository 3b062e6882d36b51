"""Fixtures for pytest, there as soon as Holdfast is installed: `holdfast_broker`, `holdfast_app`, `holdfast_drain`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

if TYPE_CHECKING:
    from .. import sync


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("holdfast_app", "the app that the fixture holdfast_app runs inline, as module:name", default="")


@pytest.fixture
def holdfast_broker() -> Iterator[sync.Broker]:
    """A blocking broker on a store in memory of its own; async code opens its `url` too."""
    from .. import sync

    with sync.connect(f"memory://t{uuid4().hex}") as broker:
        yield broker


@pytest.fixture
def holdfast_app(pytestconfig: pytest.Config) -> Iterator[Any]:
    """The app that the option `holdfast_app` names, or a new blocking one, inline: `enqueue` runs its handlers."""
    from .. import sync
    from .inline import inline

    named = str(pytestconfig.getini("holdfast_app"))
    if named:
        module, _, name = named.partition(":")
        app = getattr(import_module(module), name or "app")
    else:
        app = sync.App()
    with inline(app):
        yield app


@pytest.fixture
def holdfast_drain() -> Callable[..., int]:
    """`holdfast_drain(queue, handler)`: it runs for everything in a queue of `holdfast_broker`; how many ended.

    What is delayed stays, what is retried is waited for. TimeoutError after `timeout` seconds (10).
    """
    return _drain


def _drain(queue: sync.Queue[Any], handler: Callable[..., Any], *, timeout: float = 10.0) -> int:
    before = queue.stats()
    with queue.worker(handler):
        until = time.monotonic() + timeout
        while (stats := queue.stats()).pending or stats.processing or stats.retry:
            if time.monotonic() >= until:
                raise TimeoutError(f"{queue.name}: {stats.pending + stats.processing + stats.retry} are left")
            time.sleep(0.01)
    return stats.completed + stats.failed + stats.dead - before.completed - before.failed - before.dead
