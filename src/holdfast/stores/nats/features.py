"""What a server can, by its version."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

OLDEST = (2, 10)


class Features(msgspec.Struct, frozen=True):
    """Parts of JetStream that came over the years."""

    version: str = "?"
    batches: bool = False  # 2.12: several messages of one stream, all or none
    batch_ids: bool = False  # 2.14: with ids that the server recognises again
    message_ttl: bool = False  # 2.11: a message that goes away by itself
    many_gets: bool = False  # 2.11: the last messages of many subjects in one request
    old: bool = False  # older than anything we know


def features_of(info: Mapping[str, Any]) -> Features:
    """From what the server says when it is connected to."""
    version = str(info.get("version", "?"))
    numbers = re.match(r"(\d+)\.(\d+)", version)
    at = (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)
    return Features(
        version,
        batches=at >= (2, 12),
        batch_ids=at >= (2, 14),
        message_ttl=at >= (2, 11),
        many_gets=at >= (2, 11),
        old=at < OLDEST,
    )
