"""The task API: Django's own from version 6 on, before that of the package django-tasks. The same names."""

from __future__ import annotations

import importlib
from typing import Any

import django

PACKAGE = "django.tasks" if django.VERSION >= (6,) else "django_tasks"


def _of(module: str, name: str) -> Any:
    return getattr(importlib.import_module(f"{PACKAGE}{module}"), name)


BaseTaskBackend: Any = _of(".backends.base", "BaseTaskBackend")
TaskContext: Any = _of(".base", "TaskContext")
TaskError: Any = _of(".base", "TaskError")
TaskResult: Any = _of(".base", "TaskResult")
TaskResultStatus: Any = _of(".base", "TaskResultStatus")
TaskResultDoesNotExist: Any = _of(".exceptions", "TaskResultDoesNotExist")
task_enqueued: Any = _of(".signals", "task_enqueued")
task_started: Any = _of(".signals", "task_started")
task_finished: Any = _of(".signals", "task_finished")
task_backends: Any = _of("", "task_backends")
_JSON = "django.utils.json" if PACKAGE == "django.tasks" else "django_tasks.utils"
normalize_json: Any = importlib.import_module(_JSON).normalize_json
