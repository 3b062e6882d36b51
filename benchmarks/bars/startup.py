"""Start-up: what an import and `--help` cost."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence

from holdfast.bench.measure import Result

from .context import Bench, Line, line

_TIMED_IMPORT = "import time; start = time.perf_counter(); import {what}; print(time.perf_counter() - start)"
_OUR_APP = "from holdfast.cli import main; main()"
_BARE_APP = """
import typer
app = typer.Typer(rich_markup_mode=None)
@app.command()
def one(name: str) -> None: "One."
@app.command()
def two(name: str) -> None: "Two."
app()
"""


async def imports(bench: Bench) -> list[Line]:
    """`import holdfast` against the two modules it cannot do without."""

    async def inside(what: str) -> float:
        return float(await _output(sys.executable, "-c", _TIMED_IMPORT.format(what=what))) * 1000

    times: dict[str, list[float]] = {what: [] for what in ("holdfast", "holdfast.broker", "asyncio, msgspec")}
    for _ in range(bench.scale.starts):
        for what, found in times.items():
            found.append(await inside(what))
    lazy, first_use, needed = (Result.of(f"import {what}", found) for what, found in times.items())
    return [
        line("import holdfast, against import asyncio, msgspec", lazy, needed, bar=1.3, better="less", unit="ms"),
        line(
            "the same when `connect` is used, which loads the rest", first_use, needed, bar=None, goal=1.3,
            better="less", unit="ms",
        ),
    ]  # fmt: skip


async def help_text(bench: Bench) -> list[Line]:
    """`holdfast --help` against a bare Typer app, whole processes."""
    run_ours = (sys.executable, "-c", _OUR_APP, "--help")
    run_bare = (sys.executable, "-c", _BARE_APP, "--help")
    ours: list[float] = []
    bare: list[float] = []
    for _ in range(bench.scale.starts):
        ours.append(await _seconds(run_ours) * 1000)
        bare.append(await _seconds(run_bare) * 1000)
    mine, other = Result.of("holdfast --help", ours), Result.of("bare Typer", bare)
    return [line("holdfast --help, against a bare Typer app", mine, other, bar=1.5, better="less", unit="ms")]


async def _seconds(command: Sequence[str]) -> float:
    start = time.perf_counter()
    await _output(*command)
    return time.perf_counter() - start


async def _output(*command: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    if process.returncode:
        raise RuntimeError(f"{command[0]} failed: {err.decode(errors='replace')[-500:]}")
    return out.decode()
