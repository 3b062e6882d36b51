"""Celery's integration tests: broker and backend are ours.

Many of them run only when the URL of the backend begins with "redis", because they note in a Redis what ran. They get
one for their notes, and such a URL: under "redis+" stands our backend.
"""

from __future__ import annotations

import os

from celery.app.backends import BACKEND_ALIASES

import holdfast.kombu  # noqa: F401 - makes the URLs known

pytest_plugins = ["celery.contrib.pytest"]

BACKEND_ALIASES["redis"] = BACKEND_ALIASES["holdfast"]
os.environ["TEST_BROKER"] = f"holdfast+{os.environ['SUITE_URL']}"
os.environ["TEST_BACKEND"] = f"redis+holdfast+{os.environ['SUITE_URL']}"
os.environ["WORKER_LOGLEVEL"] = "INFO"  # as in Celery's own runs: some tests read its log
