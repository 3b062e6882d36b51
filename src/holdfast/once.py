"""How a call to enqueue deals with dedup keys, and whether it tells which messages are new."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import msgspec

from .config import unknown
from .errors import ConfigError
from .stores.capabilities import Capabilities
from .stores.records import Dedup, Envelope


class Once(msgspec.Struct, frozen=True, kw_only=True):
    """As the caller said it."""

    dedup: Dedup = "window"
    replace: bool = False
    report: bool = False

    def check(self, can: Capabilities) -> None:
        """ConfigError where this makes no sense, or the store cannot do it."""
        for name in ("report", "replace"):
            if not isinstance(said := getattr(self, name), bool):
                raise ConfigError(f"{name}: True or False, not {said!r}")
        if self.dedup not in get_args(Dedup):
            raise ConfigError(unknown("dedup: there is no", self.dedup, get_args(Dedup)))
        if self.replace and self.dedup == "window":
            raise ConfigError('replace=True is for dedup="alive" or dedup="waiting"')
        if self.replace and not can.changes_messages:
            raise ConfigError("replace=True: this store cannot change a message; cancel it and enqueue another")

    def check_keys(self, messages: Sequence[Envelope]) -> None:
        """ConfigError where there is no key that could hold."""
        if self.dedup != "window" and any(each.dedup_key is None for each in messages):
            raise ConfigError(f'dedup="{self.dedup}" needs a dedup_key')


PLAIN = Once()  # as calls are that say nothing of it
