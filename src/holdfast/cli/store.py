"""holdfast install, uninstall, doctor, maintain."""

from __future__ import annotations

from typing import Annotated

import typer

from .shell import Shell, Yes, command, group

app = group("The store as a whole.")


@command(app, "install")
async def install(
    shell: Shell,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    shared_schema: Annotated[
        bool, typer.Option("--shared-schema", help="PostgreSQL: also where others have tables.")
    ] = False,
) -> None:
    """Make what the store needs; harmless to repeat. A bucket must exist already."""
    from .. import admin

    steps = await admin.install(shell.url, dry_run=dry_run, shared_schema=shared_schema)
    shell.done("\n".join(steps) or "nothing to do", steps=steps, dry_run=dry_run)


@command(app, "uninstall")
async def uninstall(shell: Shell, yes: Yes = False) -> None:
    """Remove every queue and every message from the store, for good."""
    async with shell.broker() as broker:
        shell.confirm("Remove every queue and every message from this store?", yes=yes)
        left = await broker.uninstall()
    told = "\n".join(["uninstalled; left, as it is not Holdfast's:", *(f"  {each}" for each in left)])
    shell.done(told if left else "uninstalled", uninstalled=True, left=left)


@command(app, "doctor")
async def doctor(shell: Shell) -> None:
    """Check configuration, store and queues, one line each; exit 1 when one fails."""
    from .. import admin

    checks = await admin.doctor(shell.url)
    if shell.json:
        shell.document(checks)
    else:
        width = max(len(one.name) for one in checks)
        for one in checks:
            shell.done(f"{one.state:4}  {one.name:{width}}  {one.detail}")
    if any(one.state == "fail" for one in checks):
        raise typer.Exit(1)


@command(app, "maintain")
async def maintain(
    shell: Shell, queue: Annotated[list[str] | None, typer.Argument(metavar="QUEUE", help="None: all.")] = None
) -> None:
    """Run retention, merging and sweeping once, now; workers do it by themselves."""
    from .. import admin

    async with shell.broker() as broker:
        work = await admin.maintain(broker, queue)
    rows = [{"queue": name, "done": done} for name, done in work.items()]
    if shell.json:
        return shell.document(rows)
    for name, done in work.items():
        told = ", ".join(f"{count:,} {what.replace('_', ' ')}" for what, count in done.items() if count)
        shell.done(f"{name}: {told or 'nothing to do'}")
    if not rows:
        shell.note("no queues yet")
