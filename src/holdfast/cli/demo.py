"""holdfast demo."""

from __future__ import annotations

import time
from typing import Annotated

import msgspec
import typer

from .shell import Shell, command, group

app = group("The whole story.")

COUNTS = ("total", "pending", "processing", "retry", "dead", "archived", "completed", "failed")

NEXT = """
Try next
  {holdfast} message send emails '{{"to": "ada@example.com"}}' --priority 5
  {holdfast} queue list
  {holdfast} message read emails
  {holdfast} doctor
"""


@command(app, "demo")
async def demo(
    shell: Shell,
    spark: Annotated[bool, typer.Option(help="End with the lake and the report, where there is Java.")] = True,
) -> None:
    """See the whole story on an embedded store, in less than a minute."""
    import logging
    import tempfile
    from pathlib import Path

    from ..demo import Story

    if not shell.verbose:  # the failures are part of the story
        logging.getLogger("holdfast").setLevel(logging.CRITICAL)
    started = time.monotonic()
    lines: list[str] = []
    say = lines.append if shell.json else typer.echo
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as folder:
        place = "the store you named" if shell.url else "a temporary folder"
        say(f"A durable queue in {place}, with worker processes of its own; nothing else runs.")
        stats = await Story(shell.url or Path(folder).as_uri(), say=say, pipeline=spark).tell()
    took = time.monotonic() - started
    if shell.json:
        return shell.document({"seconds": took, "story": lines, "stats": stats})
    shell.done("")
    shell.table([msgspec.structs.asdict(stats)], list(COUNTS), empty="")
    shell.done(f"\nEverything held, in {took:.0f} seconds.\n{NEXT.format(holdfast=called())}")


def called() -> str:
    """How this program can be called again: after `make run` its environment is not on the PATH."""
    import os
    import shutil
    import sys

    here = os.path.relpath(sys.argv[0])
    return "holdfast" if shutil.which("holdfast") or not os.access(here, os.X_OK) else here


@app.callback()
def alone() -> None:
    """The whole story."""  # a callback keeps `demo` a command of its own, which the root looks up by name
