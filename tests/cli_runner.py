"""Runs `holdfast …` in this process, each test on a folder of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from holdfast.cli.root import app


class Cli:
    """One folder, and the command line on it."""

    def __init__(self, folder: Path) -> None:
        self.url = folder.as_uri()

    def __call__(self, *arguments: str, input: str | None = None, code: int = 0) -> Result:
        """Run it; anything but this exit code fails the test."""
        where = [] if "--url" in arguments else ["--url", self.url]
        result = CliRunner().invoke(app, [*arguments, *where], input=input)
        assert result.exit_code == code, (result.output, result.exception)
        return result

    def out(self, *arguments: str, input: str | None = None) -> str:
        return self(*arguments, input=input).stdout.strip()

    def json(self, *arguments: str, input: str | None = None) -> Any:
        return json.loads(self(*arguments, "--json", input=input).stdout)

    def error(self, *arguments: str, code: int = 1, input: str | None = None) -> str:
        """What a failing command says on stderr."""
        result = self(*arguments, input=input, code=code)
        assert result.stdout == ""
        assert "Traceback" not in result.stderr
        return result.stderr

    def kill(self, queue: str, value: str = "1") -> str:
        """A dead letter, made by hand; its id. The queue has max_attempts=1."""
        self("message", "send", queue, value)
        [held] = self.json("message", "read", queue)
        self("message", "fail", queue, held["receipt"], "--error", "broken")
        return str(held["id"])
