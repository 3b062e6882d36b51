"""Handlers for the tests of `process`: by name, as executors import them."""

from __future__ import annotations

import os
import time
from typing import Any

import msgspec

import holdfast


class Order(msgspec.Struct):
    n: int
    note: str = ""


app = holdfast.App()


@app.handler("orders", Order, timeout=5.0)
async def ship(order: Order, context: holdfast.Context) -> dict[str, Any]:
    """1 % fail always, 2 % fail once, poison kills its process."""
    if order.note == "poison":
        os._exit(9)
    if order.n % 100 == 5:
        raise ValueError(f"order {order.n} cannot be shipped")
    if order.n % 50 == 6 and context.attempt == 1:
        raise holdfast.Retry(0.1)
    return {"shipped": order.n}


def slow(order: dict[str, Any]) -> None:
    """Longer than its time limit, once."""
    if order["n"] == 0:
        time.sleep(1.5)


not_a_handler = 5
