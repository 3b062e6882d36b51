"""`python -m benchmarks [NAME …]`: the bars of these stores, or these bars; all by default. Exit 1 when one fails."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from pathlib import Path

import msgspec

from holdfast.bench.environment import peers_python, requirements
from holdfast.bench.show import as_table, progress
from holdfast.errors import HoldfastError

from . import bars


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    made.add_argument("only", nargs="*", metavar="NAME", help="a store or a bar")
    made.add_argument("--short", action="store_true", help="small sizes, for a look: some ten minutes for all")
    made.add_argument("--repeats", type=int, help="turns of each side; 5, or 2 in the short form")
    made.add_argument("--concurrency", type=int, default=1000, help="handlers of the worker that drains")
    made.add_argument("--folder", type=Path, help="on the disk that is to be measured; else a temporary one")
    made.add_argument("--json", type=Path, help="write everything here")
    made.add_argument("--markdown", type=Path, help="write the table here")
    return made


def main() -> int:
    asked = parser().parse_args()
    scale = msgspec.structs.replace(
        bars.QUICK if asked.short else bars.Scale(),
        repeats=asked.repeats or (2 if asked.short else 5),
        concurrency=asked.concurrency,
    )
    logging.getLogger("holdfast").setLevel(logging.ERROR)  # failing messages are part of some loads
    try:
        report = asyncio.run(_measured(asked, scale))
    except HoldfastError as error:
        sys.stderr.write(f"benchmarks: {error}\n")
        return 2
    as_table("bars", bars.COLUMNS, bars.rows(report.lines))
    if asked.json is not None:
        asked.json.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2))
    if asked.markdown is not None:
        asked.markdown.write_text(bars.markdown(report))
    return int(any(line.result == "FAIL" for line in report.lines))


async def _measured(asked: argparse.Namespace, scale: bars.Scale) -> bars.Report:
    names = bars.chosen(asked.only)
    with progress("bars", len(names), quiet=False) as bar:

        def done(lines: list[bars.Line]) -> None:
            bar.add(1)
            for line in lines:  # a long run that breaks must not take along what it has found
                sys.stderr.write(bars.summary(line) + "\n")

        bench = bars.Bench(asked.folder, scale, bar.note, lambda: peers_python(requirements()))
        return await bars.measure(bench, names, done)


if __name__ == "__main__":
    sys.exit(main())
