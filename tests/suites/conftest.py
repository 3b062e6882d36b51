"""A store for tests of kombu: what `make suites` says, else a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("celery", reason="the extra celery is not installed")

from holdfast.kombu.link import close_all
from tests.kombu import stores
from tests.kombu.stores import nats_server  # noqa: F401 - a fixture


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    yield f"holdfast+{stores.url_of(os.environ.get('SUITE_STORE', 'file'), request, tmp_path)}"
    close_all()
