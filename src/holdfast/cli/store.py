"""holdfast install, grants, uninstall, doctor, scrub, maintain, recover."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from .shell import Shell, Yes, command, group, is_a_person

if TYPE_CHECKING:
    from ..stores.formats import Format

app = group("The store as a whole.")


@command(app, "install")
async def install(
    shell: Shell,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    shared_schema: Annotated[
        bool, typer.Option("--shared-schema", help="PostgreSQL: also where others have tables.")
    ] = False,
    sql: Annotated[bool, typer.Option("--sql", help="PostgreSQL: print the migrations, for other tools.")] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="All processes on this store are of this version: raise its format.")
    ] = False,
) -> None:
    """Make what the store needs; harmless to repeat. A bucket must exist already.

    A store that an earlier version made keeps its format, which that version reads too, until you say that all
    processes are of this version: with --yes, or when asked.
    """
    from .. import admin

    if sql:
        return typer.echo(admin.install_sql(shell.url), nl=False)

    def agreed(format: Format) -> bool:
        return yes or (not dry_run and _agreed(format))

    steps = await admin.install(shell.url, dry_run=dry_run, shared_schema=shared_schema, agreed=agreed)
    shell.done("\n".join(steps) or "nothing to do", steps=steps, dry_run=dry_run)


@command(app, "grants")
async def grants(
    shell: Shell,
    role: Annotated[str, typer.Argument(metavar="ROLE", help="Of producers and workers.")],
    apply: Annotated[bool, typer.Option("--apply", help="Run it too, as the owner of the schema.")] = False,
) -> None:
    """PostgreSQL: print the SQL that gives a role what producers and workers need, and no more."""
    from .. import admin

    wanted = await admin.grants(role, shell.url, apply=apply)
    shell.done(f"role {role} may produce and work" if apply else wanted, role=role, applied=apply, sql=wanted)


def _agreed(format: Format) -> bool:
    question = (
        f"Format {format.number} can be raised to {format.newest}; earlier versions will refuse this store then. "
        "Are all its processes of this version?"
    )
    return is_a_person() and typer.confirm(question, err=True)


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


@command(app, "scrub")
async def scrub(
    shell: Shell,
    rate: Annotated[float | None, typer.Option("--rate", metavar="MB/s", help="Read no faster.", min=0.001)] = None,
    queue: Annotated[str | None, typer.Option("--queue", help="Only this one.")] = None,
    quarantine: Annotated[bool, typer.Option("--quarantine", help="Move what nobody can read to damaged/.")] = False,
) -> None:
    """Read everything again and verify it; a table of what is wrong, and exit 1 when something is."""
    from .. import admin

    per_second = None if rate is None else rate * 1e6
    admin.must_be_there(shell.url)
    async with shell.broker() as broker:
        with shell.progress("reading") as advance:
            found = await admin.scrub(broker, queue, rate=per_second, quarantine=quarantine, on_progress=advance)
    if shell.json:
        shell.document(found)
    else:
        rows = [{"queue": each.queue, "key": each.key, "problem": each.problem} for each in found.wrong]
        shell.table(rows, ("queue", "key", "problem"), empty="nothing is wrong", whole=True)
        told = f"{found.objects:,} objects, {found.bytes / 1e6:,.1f} MB in {found.seconds:.1f} s"
        shell.note(f"{told}; {found.without_sums:,} of them have no sum yet" if found.without_sums else told)
    if found.wrong:
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


@command(app, "recover")
async def recover(
    shell: Shell,
    queue: Annotated[list[str] | None, typer.Argument(metavar="QUEUE", help="None: all.")] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Delete them instead, for good.")] = False,
    yes: Yes = False,
) -> None:
    """Bring back messages that a bucket has set aside as late, each once; `holdfast doctor` says whether there are any.

    Messages that are waiting, finished or dead letters under the same ids are left out.
    """
    from .. import admin

    async with shell.broker() as broker:
        if delete:
            shell.confirm("Delete every message that was set aside?", yes=yes)
        with shell.progress("deleting" if delete else "recovering") as advance:
            found = await admin.recover(broker, queue, delete=delete, on_progress=advance)
    if shell.json:
        return shell.document([{"queue": name, "done": done} for name, done in found.items()])
    for name, done in found.items():
        parts = {
            "recovered": done.recovered,
            "known already": done.known,
            "deleted": done.deleted,
            "damaged blocks left": done.damaged,
        }
        told = ", ".join(f"{count:,} {what}" for what, count in parts.items() if count)
        shell.done(f"{name}: {told or 'nothing was set aside'}")
    if not found:
        shell.note("no queues yet")
