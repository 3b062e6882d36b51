"""The command line: `holdfast`. Each group of commands is a module, imported when it is used."""

from __future__ import annotations


def main() -> None:
    """The console script."""
    import io
    import sys

    from .root import app

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # what a terminal cannot show must not end the command
            stream.reconfigure(errors="backslashreplace")
    app(prog_name="holdfast")
