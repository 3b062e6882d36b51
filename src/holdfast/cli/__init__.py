"""The command line: `holdfast`. Each group of commands is a module, imported when it is used."""

from __future__ import annotations


def main() -> None:
    """The console script."""
    from .root import app

    app(prog_name="holdfast")
