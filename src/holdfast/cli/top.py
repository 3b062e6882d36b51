"""holdfast top: queues, rates, workers and ages in a terminal, live."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from .shell import Shell, command, group

if TYPE_CHECKING:
    from ..broker import Broker
    from .top_view import Look, View

app = group("A live view in the terminal.")

_KEYS = {
    b"\x1b[A": "up", b"\x1b[B": "down", b"\x1b[C": "right", b"\x1b[D": "left",
    b"\x1bOA": "up", b"\x1bOB": "down", b"\x1bOC": "right", b"\x1bOD": "left",
    b"\x1b": "escape", b"\r": "enter", b"\n": "enter", b"\x7f": "backspace", b"\x08": "backspace", b"\x03": "ctrl-c",
}  # fmt: skip


@command(app, "top")
async def top(
    shell: Shell,
    interval: Annotated[
        float | None, typer.Option(min=0.1, help="Seconds between two looks; 2, on a bucket 10 unless said.")
    ] = None,
    sort: Annotated[str, typer.Option(help="The column: name, pending, dead, oldest, incoming, …")] = "name",
    filter: Annotated[str, typer.Option(help="Only queues with this in their name.")] = "",
) -> None:
    """Watch queues, rates, workers and the oldest message; q ends it.

    With --json, or where nobody sees a terminal, it looks twice and answers once.
    """
    from .top_view import COLUMNS, View

    if sort not in COLUMNS:
        raise typer.BadParameter(f"--sort is one of {', '.join(COLUMNS)}")
    async with shell.broker() as broker:
        seconds = interval or (2.0 if broker.store.requests() is None else 10.0)  # which cost money there
        screen = _Screen(broker, View(sort=sort, filter=filter), seconds)
        if shell.json or not (sys.stdin.isatty() and sys.stdout.isatty()):
            await screen.once(shell)
        else:
            await screen.run()


class _Screen:
    def __init__(self, broker: Broker, view: View, interval: float) -> None:
        self._broker = broker
        self._view = view
        self._interval = interval
        self._looks: deque[Look] = deque(maxlen=6)  # rates are over five intervals: less jumps with every batch
        self._problem = ""
        self._news = asyncio.Event()  # a key, a look, another size

    async def once(self, shell: Shell) -> None:
        """Two looks, for rates; then what they show."""
        from . import top_view

        before = await self._look()
        await asyncio.sleep(self._interval)
        now = await self._look()
        found = self._view.chosen(top_view.rows(now, before))
        if shell.json:
            return shell.document({"queues": found, "processes": now.processes})
        shell.table([msgspec.structs.asdict(each) for each in found], list(top_view.COLUMNS), empty="no queues yet")

    async def run(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._looks.append(await self._look())  # what cannot be opened or read at all is an error of the command
        console = Console(highlight=False)
        looking = asyncio.ensure_future(self._keep_looking())
        try:
            with _keys(self._pressed), Live(console=console, screen=True, auto_refresh=False) as live:
                while not self._view.is_over:
                    live.update(self._drawn(console.width, console.height), refresh=True)
                    await self._news.wait()
                    self._news.clear()
        finally:
            looking.cancel()
            await asyncio.wait({looking})

    def _pressed(self, key: str) -> None:
        self._view = self._view.pressed(key)
        self._news.set()

    async def _keep_looking(self) -> None:
        from ..errors import HoldfastError

        while True:
            await asyncio.sleep(self._interval)
            try:
                self._looks.append(await self._look())
                self._problem = ""
            except HoldfastError as error:  # it may come back: what was seen last stays
                self._problem = self._problem or f"{datetime.now():%H:%M:%S} {error}"
            self._news.set()

    async def _look(self) -> Look:
        from .. import admin, reporter
        from .top_view import Look

        return Look(time.monotonic(), await admin.overview(self._broker), await reporter.alive(self._broker.store))

    def _drawn(self, width: int, height: int) -> Any:
        from rich.text import Text

        from . import top_view

        now, before = self._looks[-1], self._looks[0] if len(self._looks) > 1 else None
        title = top_view.title_of(self._broker.url or "memory://", self._interval, datetime.now())
        made = top_view.lines(
            self._view, now, top_view.rows(now, before),
            width=width, height=height, title=title, problem=self._problem,
        )  # fmt: skip
        text = Text("\n", no_wrap=True, overflow="crop").join(Text(line, style=style) for line, style in made)
        text.no_wrap, text.overflow = True, "crop"
        return text


@contextmanager
def _keys(pressed: Callable[[str], None]) -> Iterator[None]:
    """While it lasts, keys come as they are pressed and are not shown; the terminal is as before afterwards."""
    import termios
    import tty

    loop, stdin = asyncio.get_running_loop(), sys.stdin.fileno()
    before = termios.tcgetattr(stdin)

    def read() -> None:
        data = os.read(stdin, 1024)
        for key in keys_of(data) if data else ["ctrl-c"]:  # nothing: the terminal is gone
            pressed(key)

    tty.setcbreak(stdin)
    loop.add_reader(stdin, read)
    loop.add_signal_handler(signal.SIGWINCH, pressed, "resized")
    loop.add_signal_handler(signal.SIGINT, pressed, "ctrl-c")
    try:
        yield
    finally:
        loop.remove_reader(stdin)
        loop.remove_signal_handler(signal.SIGWINCH)
        loop.remove_signal_handler(signal.SIGINT)
        termios.tcsetattr(stdin, termios.TCSADRAIN, before)


def keys_of(data: bytes) -> list[str]:
    """Keys by name, text as it is; sequences that mean nothing here are left out."""
    found: list[str] = []
    while data:
        known = max((each for each in _KEYS if data.startswith(each)), key=len, default=b"")
        if known == b"\x1b" and data[1:2] in (b"[", b"O"):  # a key that we do not know
            end = next((at for at in range(2, len(data)) if 0x40 <= data[at] <= 0x7E), len(data) - 1)
            data = data[end + 1 :]
        elif known:
            found.append(_KEYS[known])
            data = data[len(known) :]
        else:
            first = data.decode(errors="replace")[0]
            found += [first] if first.isprintable() and first != "\ufffd" else []
            data = data[max(1, len(first.encode())) if first != "\ufffd" else 1 :]
    return found
