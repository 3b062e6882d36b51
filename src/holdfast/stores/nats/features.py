"""What a server can, by its version."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

OLDEST = (2, 12)  # atomic batches; message TTL and gets of many subjects came before


class Features(msgspec.Struct, frozen=True):
    """Parts of JetStream that came over the years."""

    version: str = "?"
    batch_ids: bool = False  # 2.14: with ids that the server recognises again
    old: bool = False  # older than what we need


def features_of(info: Mapping[str, Any]) -> Features:
    """From what the server says when it is connected to."""
    version = str(info.get("version", "?"))
    numbers = re.match(r"(\d+)\.(\d+)", version)
    at = (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)
    return Features(
        version,
        batch_ids=at >= (2, 14),
        old=at < OLDEST,
    )
