"""How a server is set; checked when it is made."""

from __future__ import annotations

import ipaddress

import msgspec

from ..config import MIB
from ..errors import ConfigError
from .tokens import Tokens

BODY_BYTES = 72 * MIB  # of a request after unpacking: the largest message by default, as base64 in msgpack or alone
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What `holdfast serve` and `holdfast.server.app` take."""

    tokens: Tokens = Tokens()
    host_names: tuple[str, ...] = ()  # that a request may name besides the loopback names; "*": any
    path: str = ""  # below which everything lies, such as /queues
    read_only: bool = False
    show_payloads: bool = False  # also to the role read
    redact: tuple[str, ...] = ()  # fields of JSON payloads that are never shown
    state: str | None = None  # a file for the history of the page; None: next to a folder store, else in memory
    open_metrics: bool = False  # /metrics without a token
    body_bytes: int = BODY_BYTES

    def check(self, host: str) -> None:
        """ConfigError for an address that strangers reach where nobody is asked who they are."""
        if not is_loopback(host) and not self.tokens:
            raise ConfigError(f"{host} can be reached by others: give tokens (--token-file), or serve on 127.0.0.1")
        if self.path and (not self.path.startswith("/") or self.path.endswith("/")):
            raise ConfigError(f"path: begins with a slash and does not end with one, not {self.path!r}")


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
