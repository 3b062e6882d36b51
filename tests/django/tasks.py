"""Tasks of the tests."""

from __future__ import annotations

import importlib
from typing import Any

import holdfast
from holdfast.django import api

task: Any = importlib.import_module(api.PACKAGE).task
ran: list[Any] = []


@task()
def add(x: int, y: int) -> int:
    ran.append(x + y)
    return x + y


@task(queue_name="mail", priority=-5)
async def send(address: str) -> dict[str, str]:
    return {"to": address}


@task()
def bad() -> None:
    raise ValueError("this one is bad")


@task(takes_context=True)
def attempts(context: Any, least: int) -> int:
    if context.attempt < least:
        raise holdfast.Retry(0)
    return int(context.attempt)


@task(takes_context=True)
def own_id(context: Any) -> str:
    return str(context.task_result.id)


@task()
def ends() -> None:
    raise SystemExit("enough")


@task()
def not_json() -> object:
    return object()
