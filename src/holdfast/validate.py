"""What a number that somebody gives may be: seconds, a positive number, a whole one. Else ConfigError, in words."""

from __future__ import annotations

import math

from .errors import ConfigError

CENTURY_S = 100 * 365 * 86400.0  # beyond it a number of seconds is a mistake


def seconds(name: str, value: object) -> float:
    """A number of seconds from 0 up."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{name}: seconds are a number, not {value!r}")
    if not 0 <= value <= CENTURY_S or math.isnan(value):
        raise ConfigError(f"{name} must be from 0 to {CENTURY_S:.0f}, not {value!r}")
    return float(value)


def positive(name: str, value: object) -> float:
    """A number above 0."""
    number = seconds(name, value)
    if number == 0:
        raise ConfigError(f"{name} must be above 0")
    return number


def whole(name: str, value: object, *, least: int = 1, most: int | None = None) -> int:
    """A whole number within its limits."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(f"{name}: a whole number, not {value!r}")
    if value < least or (most is not None and value > most):
        limits = f"at least {least}" if most is None else f"from {least} to {most}"
        raise ConfigError(f"{name} must be {limits}, not {value}")
    return value
