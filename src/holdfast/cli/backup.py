"""holdfast backup, restore, move."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from .shell import Shell, command, group

app = group("Copies of everything that a store keeps.")

Source = Annotated[str, typer.Argument(metavar="URL", help="The store, for example file:///var/lib/jobs.")]
Place = Annotated[str, typer.Argument(metavar="TARGET", help="A folder, or a bucket as s3://bucket/prefix.")]
Prefix = Annotated[str, typer.Option("--as", metavar="PREFIX", help="Put this before the names of all queues.")]


@command(app, "backup")
async def backup(shell: Shell, source: Source, target: Place) -> None:
    """Copy everything that a store keeps to a folder or a bucket, while it is in use, and verify it.

    What the target has from an earlier backup is not copied again where the store can tell. One that is interrupted
    leaves the target at the backup before; run it again.
    """
    from .. import backups

    with _progress(shell, "copying") as advance:
        made = await backups.backup(source, target, on_progress=advance)
    told = (
        f"backup {made.number}: {made.queues:,} queues, {made.messages:,} messages as of {made.instant}; "
        f"{made.new_bytes:,} bytes in {made.new_files:,} new files, {made.bytes:,} in {made.files:,} files in all"
    )
    if made.repaired:
        told += f"; {made.repaired:,} files of earlier backups were damaged or gone, and were written again"
    if made.lost:
        told += f"; damaged and no use: backup {', '.join(map(str, made.lost))}"
    shell.done(told, **_facts(made))


@command(app, "restore")
async def restore(
    shell: Shell,
    target: Place,
    source: Source,
    prefix: Prefix = "",
    number: Annotated[int | None, typer.Option("--number", help="Of the backup; the last one when left out.")] = None,
) -> None:
    """Put the queues of a backup into a store of any kind. Queues of the same names must not be there, or --as.

    Everything is verified first. One that is interrupted is repeated: nothing is added twice.
    """
    from .. import backups

    with _progress(shell, "restoring") as advance:
        made = await backups.restore(target, source, prefix=prefix, number=number, on_progress=advance)
    told = f"restored {len(made.queues):,} queues, {made.messages:,} messages as of {made.instant}"
    if made.already:
        told = f"these queues were restored from backup {made.number} before: nothing was added"
    shell.done(told, **_facts(made))


@command(app, "move")
async def move(
    shell: Shell,
    source: Source,
    target: Annotated[str, typer.Argument(metavar="URL", help="The store that gets everything.")],
    prefix: Prefix = "",
) -> None:
    """Put everything of one store into another of any kind, with ids, states, attempts, delays and order.

    The queues of the first are paused and stay so: start workers and producers on the other, then delete the first.
    """
    from .. import backups

    with _progress(shell, "moving") as advance:
        made = await backups.move(source, target, prefix=prefix, on_progress=advance)
    told = f"moved {len(made.queues):,} queues, {made.messages:,} messages; the queues of the first store are paused"
    shell.done(told, **_facts(made))


@contextmanager
def _progress(shell: Shell, label: str) -> Iterator[Callable[[int, int], None]]:
    with shell.progress(label) as advance:
        yield lambda done, of: advance(done)


def _facts(made: Any) -> dict[str, Any]:
    import msgspec

    facts: dict[str, Any] = msgspec.to_builtins(made)
    return facts
