"""Who may do what: tokens, their roles and the queues they are for. Pure; tokens are kept as hashes."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias, get_args

import msgspec

from ..config import unknown
from ..errors import ConfigError

Role: TypeAlias = Literal["read", "work", "operate", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)  # each may do what those before it may
_LEAST_CHARS = 16  # of a token: less can be guessed
SESSION_S = 7 * 86400.0  # a browser is asked for its token again after a week


class Holder(msgspec.Struct, frozen=True):
    """The caller. `queues` are patterns such as `tenant-*`; none: every queue."""

    name: str
    role: Role
    queues: tuple[str, ...] = ()

    def may(self, role: Role) -> bool:
        return ROLES.index(self.role) >= ROLES.index(role)

    def reaches(self, queue: str) -> bool:
        return not self.queues or any(fnmatchcase(queue, pattern) for pattern in self.queues)


LOCAL = Holder("local", "admin")  # where no tokens are given: everybody who reaches the loopback address


class Tokens:
    """All that are known. Lines are `name:role:token` or `name:role:queue patterns:token`; commas divide patterns."""

    def __init__(self, lines: Iterable[str] = ()) -> None:
        self._holders = [_parsed(number, line) for number, line in _meant(lines)]

    def __bool__(self) -> bool:
        return bool(self._holders)

    def find(self, token: str) -> Holder | None:
        """Every token is compared, each in constant time: how long it takes tells nothing."""
        digest, found = _digest(token), None
        for known, holder in self._holders:
            if hmac.compare_digest(known, digest):
                found = holder
        return found

    def session(self, token: str, now: float) -> str:
        """What a browser keeps instead of a token that is known: it says until when, and ends with its token."""
        until = f"{now + SESSION_S:.0f}"
        return f"{until}.{_signed(_digest(token), until)}"

    def find_session(self, kept: str, now: float) -> Holder | None:
        until, _, signature = kept.partition(".")
        found = None
        for known, holder in self._holders:
            if hmac.compare_digest(_signed(known, until).encode(), signature.encode(errors="replace")):
                found = holder
        return found if until.isdecimal() and len(until) < _LEAST_CHARS and now < int(until) else None


def _meant(lines: Iterable[str]) -> Iterable[tuple[int, str]]:
    stripped = ((number, line.strip()) for number, line in enumerate(lines, 1))
    return ((number, line) for number, line in stripped if line and not line.startswith("#"))


def _parsed(number: int, line: str) -> tuple[bytes, Holder]:
    """The line itself is never shown."""
    parts = line.split(":", 3)
    if len(parts) not in (3, 4) or not parts[0]:
        raise ConfigError(f"tokens, line {number}: write name:role:token or name:role:queue patterns:token")
    name, role, token = parts[0], parts[1], parts[-1]
    if role not in ROLES:
        raise ConfigError(unknown(f"tokens, line {number}: unknown role", role, ROLES))
    if len(token) < _LEAST_CHARS:
        raise ConfigError(f"tokens, line {number}: a token has at least {_LEAST_CHARS} characters")
    patterns = tuple(filter(None, parts[2].split(","))) if len(parts) == 4 else ()
    return _digest(token), Holder(name, msgspec.convert(role, Role), patterns)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()


def _signed(digest: bytes, until: str) -> str:
    """By the digest of a token, which nobody else has."""
    return hmac.new(digest, f"session until {until}".encode(errors="replace"), hashlib.sha256).hexdigest()
