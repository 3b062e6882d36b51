"""The options that every command takes, before its name or after it."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

Url = Annotated[str | None, typer.Option("--url", help="The store, for example file:///var/lib/jobs.")]
Json = Annotated[bool, typer.Option("--json", help="Answer with one JSON document.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log what happens; show tracebacks.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No sentences: only what was asked for, such as ids.")]
Utc = Annotated[bool, typer.Option("--utc", help="Show times in UTC, not in the local zone.")]

_WITH_VALUE = ("--url",)
_ALONE = ("--json", "--verbose", "-v", "--quiet", "-q", "--utc")


class Group(TyperGroup):
    """A group whose common options may stand before the command: they are read as if they stood behind it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        common, rest = _split(args)
        if rest and not rest[0].startswith("-"):
            end = rest.index("--") if "--" in rest else len(rest)
            args = [*rest[:end], *common, *rest[end:]]
        return super().parse_args(ctx, args)


def _split(args: list[str]) -> tuple[list[str], list[str]]:
    """The common options at the beginning, and the rest."""
    at = 0
    while at < len(args):
        if args[at] in _WITH_VALUE and at + 1 < len(args):
            at += 2
        elif args[at] in _ALONE or args[at].startswith(tuple(f"{name}=" for name in _WITH_VALUE)):
            at += 1
        else:
            break
    return args[:at], args[at:]


COMMON: dict[str, tuple[Any, Any]] = {
    "url": (Url, None),
    "json": (Json, False),
    "verbose": (Verbose, False),
    "quiet": (Quiet, False),
    "utc": (Utc, False),
}
