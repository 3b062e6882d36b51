"""The peers as this process sees them: a program in their own environment, asked by JSON."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import msgspec

from ..errors import HoldfastError
from .raw import scratch

_HERE = str(Path(__file__).resolve().parent)
# Appended, not put first: this folder has a queue.py of its own.
_PROGRAM = "import sys; sys.path.append(sys.argv.pop(1)); from peers.{module} import run; run()"


class Opponent(msgspec.Struct, frozen=True):
    """One way to use one peer. `acks`: message (each on its own) or cursor (one reader commits its position)."""

    name: str
    module: str
    way: str
    acks: str = "message"


OPPONENTS = (
    Opponent("huey", "on_huey", "ack"),
    Opponent("litequeue", "on_litequeue", "ack"),
    Opponent("persist-queue", "on_persistqueue", "ack"),
    Opponent("persist-queue cursor", "on_persistqueue", "cursor", "cursor"),
)


class Answer(msgspec.Struct, frozen=True):
    """Seconds of each phase."""

    version: str
    settings: str
    bulk: float
    drain: float
    single: float


async def ask(
    opponent: Opponent, python: Path, *, folder: Path | None, count: int, single: int, size: int, timeout: float = 1800
) -> Answer:
    """Run the load once on a fresh database of the peer."""
    with scratch(folder) as where:
        spec = {"way": opponent.way, "folder": str(where), "count": count, "single": single, "size": size}
        process = await asyncio.create_subprocess_exec(
            str(python), "-c", _PROGRAM.format(module=opponent.module), _HERE, json.dumps(spec),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            out, err = await asyncio.wait_for(process.communicate(), timeout)
        finally:
            if process.returncode is None:
                process.kill()
        if process.returncode:
            raise HoldfastError(f"{opponent.name}: {err.decode(errors='replace').strip()[-500:]}")
        return msgspec.json.decode(out, type=Answer)
