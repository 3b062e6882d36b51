"""holdfast archive: list, replay, purge."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from . import values
from .dead import After, Limit
from .message import COLUMNS, QueueName
from .shell import Shell, Yes, command, group

app = group("Look at finished messages, replay or purge them.")

Instant = typer.Option(metavar="TIME", help="Such as 2026-01-31T12:00:00; UTC unless it says otherwise.")
OlderThan = typer.Option(metavar="SECONDS", help="Only what finished longer ago, such as 7d.")


@command(app, "list")
async def list_archive(shell: Shell, queue: QueueName, limit: Limit = 100, after: After = None) -> None:
    """List finished messages by id, oldest first."""
    from .. import admin

    async with shell.queue(queue) as source:
        rows = [msgspec.structs.asdict(one) for one in await admin.page(source.archive, limit=limit, after=after)]
    shell.table(rows, [*COLUMNS, "finished_at"], empty="the archive is empty")


@command(app, "replay")
async def replay(
    shell: Shell,
    queue: QueueName,
    id: Annotated[list[str] | None, typer.Argument(metavar="ID", help="Or say --since and --until.")] = None,
    since: Annotated[str | None, Instant] = None,
    until: Annotated[str | None, Instant] = None,
) -> None:
    """Send copies of finished messages again.

    Repeating it adds nothing.
    """
    if bool(id) == (since is not None or until is not None):
        raise typer.BadParameter("say which: ids, or --since and/or --until")
    first, end = (None if text is None else values.instant(text) for text in (since, until))
    async with shell.queue(queue) as source:
        with shell.progress(f"replaying the archive of {queue}"):
            count = await source.archive.replay(id or None, since=first, until=end)
    shell.done(f"replayed {count:,} messages of {queue}", queue=queue, replayed=int(count))


@command(app, "purge")
async def purge(
    shell: Shell,
    queue: QueueName,
    older_than: Annotated[str, OlderThan] = "0",
    yes: Yes = False,
) -> None:
    """Delete finished messages for good. Dead letters stay."""
    age = values.seconds(older_than)
    async with shell.queue(queue) as source:
        shell.confirm(f"Delete finished messages of {queue}?", yes=yes)
        with shell.progress(f"purging the archive of {queue}"):
            count = await source.cleanup(age)
    shell.done(f"deleted {count:,} finished messages of {queue}", queue=queue, deleted=count)
