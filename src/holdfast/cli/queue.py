"""holdfast queue: create, list, show, configure, metrics, purge, delete, pause, resume."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from . import values
from .shell import Shell, Yes, command, group

app = group("Create, list, configure, pause and delete queues.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The queue.")]
Options = Annotated[
    list[str] | None,
    typer.Argument(metavar="OPTION=VALUE", help="Such as lease=60 or retry='{policy: fixed, delay: 5}'."),
]


@command(app, "create")
async def create(shell: Shell, name: Name, option: Options = None) -> None:
    """Create a queue, with options if you like."""
    settings = values.options(option or [])
    async with shell.broker() as broker:
        await broker.create_queue(name, **settings)
    shell.done(f"created {name}", queue=name)


@command(app, "list")
async def list_queues(shell: Shell) -> None:
    """List all queues with what waits in them."""
    from .. import admin

    async with shell.broker() as broker:
        rows = [_row(one) for one in await admin.overview(broker)]
    columns = ["name", "paused", "pending", "delayed", "processing", "retry", "dead", "archived", "oldest_age"]
    shell.table(rows, columns, empty="no queues yet: holdfast queue create NAME")


@command(app, "show")
async def show(shell: Shell, name: Name) -> None:
    """Show one queue: its options and its counts."""
    from .. import admin

    async with shell.broker() as broker:
        one = await admin.report(broker, name)
    if shell.json:
        return shell.document(one)
    shell.fields({"name": one.name, "paused": one.paused, "created_at": one.created_at})
    for part in (one.stats, one.options):
        shell.done("")
        shell.fields(msgspec.structs.asdict(part))


@command(app, "configure")
async def configure(shell: Shell, name: Name, option: Options = None) -> None:
    """Change stored options; workers take them up by themselves."""
    settings = values.options(option or [])
    if not settings:
        raise typer.BadParameter("say what to change, for example lease=60")
    async with shell.broker() as broker:
        await broker.configure_queue(name, **settings)
    shell.done(f"configured {name}: {', '.join(settings)}", queue=name, changed=settings)


@command(app, "metrics")
async def metrics(shell: Shell, name: Annotated[str | None, typer.Argument(metavar="NAME")] = None) -> None:
    """Show the counts of one queue, or of all."""
    from .. import admin

    async with shell.broker() as broker:
        reports = [await admin.report(broker, name)] if name else await admin.overview(broker)
    rows = [_row(one) for one in reports]
    if name:
        shell.fields(rows[0])
    else:
        shell.table(rows, [key for key in (rows[0] if rows else {}) if key != "exact"], empty="no queues yet")


@command(app, "purge")
async def purge(shell: Shell, name: Name, yes: Yes = False) -> None:
    """Drop what waits: delayed, pending and retrying messages. Held, dead and archived ones stay."""
    async with shell.queue(name) as queue:
        shell.confirm(f"Drop everything that waits in {name}?", yes=yes)
        with shell.progress(f"purging {name}"):
            count = await queue.purge()
    shell.done(f"purged {count:,} messages of {name}", queue=name, purged=count)


@command(app, "delete")
async def delete(
    shell: Shell,
    name: Name,
    force: Annotated[bool, typer.Option("--force", help="Also when it holds messages or dead letters.")] = False,
    yes: Yes = False,
) -> None:
    """Delete a queue with its archive.

    One that still holds messages or dead letters only with --force.
    """
    async with shell.broker() as broker:
        await broker.queue(name, create=False)  # before asking: whether it is there at all
        shell.confirm(f"Delete {name} and its archive?", yes=yes)
        await broker.delete_queue(name, force=force)
    shell.done(f"deleted {name}", queue=name)


@command(app, "pause")
async def pause(shell: Shell, name: Name) -> None:
    """Stop deliveries; messages are still taken in."""
    async with shell.queue(name) as queue:
        await queue.pause()
    shell.done(f"paused {name}", queue=name, paused=True)


@command(app, "resume")
async def resume(shell: Shell, name: Name) -> None:
    """Let a paused queue deliver again."""
    async with shell.queue(name) as queue:
        await queue.resume()
    shell.done(f"resumed {name}", queue=name, paused=False)


def _row(one: Any) -> dict[str, Any]:
    return {"name": one.name, "paused": one.paused, **msgspec.structs.asdict(one.stats)}
