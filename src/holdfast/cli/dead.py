"""holdfast dead: list, replay, delete, purge."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from .message import COLUMNS, QueueName
from .shell import Shell, Yes, command, group

app = group("Look at dead letters, replay or delete them.")

Limit = Annotated[int, typer.Option(min=1, help="At most so many.")]
After = Annotated[str | None, typer.Option(metavar="ID", help="Go on after this id.")]
Ids = Annotated[list[str] | None, typer.Argument(metavar="ID", help="None: all of them.")]


@command(app, "list")
async def list_dead(shell: Shell, queue: QueueName, limit: Limit = 100, after: After = None) -> None:
    """List dead letters by id, oldest first."""
    from .. import admin

    async with shell.queue(queue) as source:
        rows = [msgspec.structs.asdict(one) for one in await admin.page(source.dead, limit=limit, after=after)]
    shell.table(rows, [name for name in COLUMNS if name != "status"], empty="no dead letters")


@command(app, "replay")
async def replay(shell: Shell, queue: QueueName, id: Ids = None) -> None:
    """Send dead letters back to the queue.

    Attempts count from zero again; repeating it adds nothing.
    """
    from .. import admin

    async with shell.queue(queue) as source:
        total = len(id) if id else await source.dead.count()
        with shell.progress(f"replaying {queue}", total=total) as advance:
            count = await admin.replay_dead(source, id, on_progress=advance)
    shell.done(f"replayed {count:,} dead letters of {queue}", queue=queue, replayed=int(count))


@command(app, "delete")
async def delete(
    shell: Shell, queue: QueueName, id: Annotated[list[str], typer.Argument(metavar="ID")], yes: Yes = False
) -> None:
    """Delete these dead letters for good."""
    async with shell.queue(queue) as source:
        shell.confirm(f"Delete {len(id)} dead letters of {queue}?", yes=yes)
        count = await source.dead.delete(id)
    shell.done(f"deleted {count:,} dead letters of {queue}", queue=queue, deleted=count)


@command(app, "purge")
async def purge(shell: Shell, queue: QueueName, yes: Yes = False) -> None:
    """Delete all dead letters of a queue for good."""
    async with shell.queue(queue) as source:
        shell.confirm(f"Delete all dead letters of {queue}?", yes=yes)
        with shell.progress(f"purging the dead letters of {queue}"):
            count = await source.dead.purge()
    shell.done(f"deleted {count:,} dead letters of {queue}", queue=queue, deleted=count)
