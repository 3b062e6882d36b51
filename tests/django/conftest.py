"""Django is set up once for the process; every test has a store of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("django", reason="the extra django is not installed")

import django
from django.conf import settings

if not settings.configured:
    settings.configure(
        USE_TZ=True,
        SECRET_KEY="tests",
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        INSTALLED_APPS=["holdfast.django"],
        TASKS={
            "default": {
                "BACKEND": "holdfast.django.HoldfastBackend",
                "QUEUES": ["default", "mail"],
                "OPTIONS": {"URL": "memory://django"},
            }
        },
    )
    django.setup()

from django.test import override_settings

from holdfast.django import api
from holdfast.django.backend import HoldfastBackend
from holdfast.django.stores import close_all


@pytest.fixture
def options() -> dict[str, Any]:
    """Of the backend, beside its URL."""
    return {}


@pytest.fixture
def backend(tmp_path: Path, options: dict[str, Any]) -> Iterator[HoldfastBackend]:
    """Threads of workers have one of their own, from the same settings."""
    params = {"QUEUES": ["default", "mail"], "OPTIONS": {"URL": f"file://{tmp_path / 'jobs'}", **options}}
    with override_settings(TASKS={"default": {"BACKEND": "holdfast.django.HoldfastBackend", **params}}):
        yield api.task_backends["default"]
    close_all()
