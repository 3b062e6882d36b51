"""When is the next try? Policies are values: stored with the queue, compared, written in YAML."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from .errors import ConfigError
from .validate import positive, seconds


class Exponential(msgspec.Struct, frozen=True, tag_field="policy", tag="exponential", forbid_unknown_fields=True):
    """base, base·factor, base·factor² … up to cap; with jitter a random part between half and all of it."""

    base: float = 1.0
    factor: float = 2.0
    cap: float = 300.0
    jitter: bool = True

    def __post_init__(self) -> None:
        seconds("Exponential: base", self.base)
        seconds("Exponential: cap", self.cap)
        if positive("Exponential: factor", self.factor) < 1:
            raise ConfigError(f"Exponential: factor must be at least 1, not {self.factor!r}")
        if not isinstance(self.jitter, bool):
            raise ConfigError(f"Exponential: jitter is True or False, not {self.jitter!r}")

    def after(self, attempt: int) -> float:
        """Seconds from the failure of this attempt (the first is 1) to the next try."""
        try:
            full = min(self.cap, self.base * float(self.factor) ** (attempt - 1))
        except OverflowError:
            full = self.cap
        return full * random.uniform(0.5, 1.0) if self.jitter else full


class Fixed(msgspec.Struct, frozen=True, tag_field="policy", tag="fixed", forbid_unknown_fields=True):
    """The same delay every time."""

    delay: float = 5.0

    def __post_init__(self) -> None:
        seconds("Fixed: delay", self.delay)

    def after(self, attempt: int) -> float:
        return self.delay


class Linear(msgspec.Struct, frozen=True, tag_field="policy", tag="linear", forbid_unknown_fields=True):
    """step, 2·step, 3·step … up to cap."""

    step: float = 5.0
    cap: float = 300.0

    def __post_init__(self) -> None:
        seconds("Linear: step", self.step)
        seconds("Linear: cap", self.cap)

    def after(self, attempt: int) -> float:
        return min(self.cap, self.step * attempt)


class NoRetry(msgspec.Struct, frozen=True, tag_field="policy", tag="none", forbid_unknown_fields=True):
    """One run; the first failure is the last."""

    def after(self, attempt: int) -> float | None:
        """None: no further try."""
        return None


RetryPolicy: TypeAlias = Exponential | Fixed | Linear | NoRetry
RetryFunction: TypeAlias = Callable[[int, BaseException], float | None]


def policy_from(value: Any) -> RetryPolicy:
    """A policy from itself or from what YAML says: {policy: fixed, delay: 5}."""
    if isinstance(value, RetryPolicy):
        return value
    try:
        policy: RetryPolicy = msgspec.convert(value, RetryPolicy)
    except msgspec.ValidationError as error:
        raise ConfigError(f"retry: {error}; write for example {{policy: fixed, delay: 5}}") from error
    return policy
