"""Stores for the tests."""

from __future__ import annotations

import pytest

pytest.importorskip("celery", reason="the extra celery is not installed")

from tests.kombu.stores import file_url, nats_server, served, url  # noqa: F401 - fixtures
