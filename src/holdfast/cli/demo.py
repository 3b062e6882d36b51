"""holdfast demo."""

from __future__ import annotations

import time

import typer

from .shell import Shell, command, group

app = group("The whole story.")

NEXT = """
Try next
  holdfast message send emails '{"to": "ada@example.com"}' --priority 5
  holdfast queue list
  holdfast message read emails
  holdfast doctor
"""


@command(app, "demo")
async def demo(shell: Shell) -> None:
    """See the whole story on an embedded store, in less than a minute."""
    import tempfile
    from pathlib import Path

    from ..demo import Story

    started = time.monotonic()
    lines: list[str] = []
    say = lines.append if shell.json else typer.echo
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as folder:
        url = shell.url or Path(folder).as_uri()
        say(f"A durable queue in {'a temporary folder' if shell.url is None else 'the store you named'}.")
        await Story(url, say=say).tell()
    took = time.monotonic() - started
    shell.done(f"\nEverything held, in {took:.0f} seconds.\n{NEXT}", seconds=took, story=lines)


@app.callback()
def alone() -> None:
    """The whole story."""  # a callback keeps `demo` a command of its own, which the root looks up by name
