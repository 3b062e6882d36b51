"""What people type, as values: JSON, key=value pairs, seconds, instants. Wrong input is a usage error (exit 2)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import typer

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def json_value(text: str | bytes, *, what: str = "the message") -> Any:
    """Any JSON value."""
    import msgspec

    data = text if isinstance(text, bytes) else text.encode(errors="surrogateescape")  # as it was typed
    try:
        return msgspec.json.decode(data)
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"{what} is not JSON: it is no UTF-8 text") from error
    except RecursionError:
        from ..limits import too_deep

        raise typer.BadParameter(f"{what}: {too_deep()}") from None
    except msgspec.DecodeError as error:
        hint = " (a text needs its quotes: '\"hello\"')" if not data.lstrip().startswith((b"{", b"[")) else ""
        raise typer.BadParameter(f"{what} is not JSON: {error}{hint}") from error


def pairs(texts: Sequence[str], *, what: str) -> dict[str, str]:
    """["a=1"] as {"a": "1"}."""
    found = {}
    for text in texts:
        key, sign, value = text.partition("=")
        if not (sign and key):
            raise typer.BadParameter(f"{what} is written key=value, not {text!r}")
        found[key] = value
    return found


def options(texts: Sequence[str]) -> dict[str, Any]:
    """Queue options: ["lease=60", "retry={policy: fixed, delay: 5}"], the values as in YAML."""
    import yaml

    try:
        return {key: yaml.safe_load(value) for key, value in pairs(texts, what="an option").items()}
    except yaml.YAMLError as error:
        raise typer.BadParameter(f"an option's value is not YAML: {error}") from error


def seconds(text: str) -> float:
    """30, 1.5, 45s, 10m, 2h, 7d."""
    unit = UNITS.get(text[-1:])
    try:
        value = float(text[:-1]) * unit if unit else float(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is no time; write seconds, or for example 10m, 2h, 7d") from error
    if not 0 <= value < float("inf"):
        raise typer.BadParameter(f"{text!r}: a time is not negative")
    return value


def end(text: str) -> float | datetime:
    """Seconds from now, or an instant; only this one has a `T` or begins with a year."""
    return instant(text) if "T" in text or text[4:5] == "-" else seconds(text)


def instant(text: str) -> datetime:
    """An ISO 8601 date or time; UTC unless it says otherwise."""
    try:
        value = datetime.fromisoformat(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is no time; write for example 2026-01-31T12:00:00") from error
    return value if value.tzinfo else value.replace(tzinfo=UTC)
