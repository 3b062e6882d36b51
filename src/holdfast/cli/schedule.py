"""holdfast schedule: list, show, put, pause, resume, trigger, backfill, preview, delete, tick."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import values
from .output import moment
from .shell import Shell, Yes, command, group

if TYPE_CHECKING:
    from datetime import datetime

    from ..scheduling import ScheduleInfo

app = group("Enqueue messages by cron text or at intervals.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The schedule.")]
_COLUMNS = ["name", "queue", "when", "tz", "next_slot", "last_slot", "fired", "missed", "state"]


@command(app, "list")
async def list_schedules(shell: Shell) -> None:
    """List all schedules, with their next and last slot."""
    async with shell.broker() as broker:
        found = await broker.schedules.list()
    shell.table([_row(one) for one in found], _COLUMNS, empty="no schedules yet: holdfast schedule put NAME QUEUE")


@command(app, "show")
async def show(shell: Shell, name: Name) -> None:
    """Show one schedule: what was said, and how far it has come."""
    import msgspec

    async with shell.broker() as broker:
        found = await broker.schedules.get(name)
    if shell.json:
        return shell.document(found)
    fields = msgspec.structs.asdict(found)
    said = msgspec.structs.asdict(fields.pop("schedule"))
    shell.fields({**said, **fields, "missed": said["missed"], "missed_slots": found.missed})


@command(app, "put")
async def put(
    shell: Shell,
    name: Name,
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="Where its messages go.")],
    value: Annotated[str, typer.Argument(metavar="JSON", help="What they say.")] = "null",
    cron: Annotated[str | None, typer.Option(help="Five fields, six with seconds first, or @daily.")] = None,
    every: Annotated[str | None, typer.Option(metavar="SECONDS", help="Instead of --cron: 90, 10m, 2h.")] = None,
    tz: Annotated[str, typer.Option(help="A time zone such as Europe/Berlin.")] = "UTC",
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="OPTION=VALUE",
            help="missed, catch_up, overlap, jitter, start, end, priority, max_attempts; may be repeated.",
        ),
    ] = None,
) -> None:
    """Make a schedule, or change the one of this name, which keeps its last slot."""
    from ..scheduling import from_mapping

    said: dict[str, Any] = {"queue": queue, "value": values.json_value(value, what="the value"), "tz": tz}
    said |= {"cron": cron, "every": None if every is None else values.seconds(every), **values.options(option or [])}
    schedule = from_mapping(name, said, where=f"schedule {name}")
    async with shell.broker() as broker:
        await broker.schedules.put(schedule)
        found = await broker.schedules.get(name)
    shell.done(f"schedule {name}: next {_shown(shell, found.next_slot)}", schedule=name, next_slot=found.next_slot)


@command(app, "pause")
async def pause(
    shell: Shell,
    name: Name,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Resume by itself then.")] = None,
) -> None:
    """Fire no slot, for now; `missed` decides about them later."""
    end = None if until is None else values.instant(until)
    async with shell.broker() as broker:
        await broker.schedules.pause(name, end)
    shell.done(f"paused {name}", schedule=name, paused=True)


@command(app, "resume")
async def resume(shell: Shell, name: Name) -> None:
    """Let a paused schedule fire again."""
    async with shell.broker() as broker:
        await broker.schedules.resume(name)
    shell.done(f"resumed {name}", schedule=name, paused=False)


@command(app, "trigger")
async def trigger(shell: Shell, name: Name) -> None:
    """Enqueue its message now, in addition to its slots."""
    async with shell.broker() as broker:
        id = await broker.schedules.trigger(name)
    shell.done(id, schedule=name, id=id)


@command(app, "backfill")
async def backfill(
    shell: Shell,
    name: Name,
    since: Annotated[str, typer.Option(metavar="TIME", help="From this slot on.")],
    until: Annotated[str, typer.Option(metavar="TIME", help="Up to this one.")],
) -> None:
    """Enqueue the messages of past slots; a repeat adds nothing."""
    first, last = values.instant(since), values.instant(until)
    async with shell.broker() as broker:
        ids = await broker.schedules.backfill(name, first, last)
    shell.done(f"{len(ids):,} slots of {name} have their message", schedule=name, ids=ids)


@command(app, "preview")
async def preview(
    shell: Shell,
    what: Annotated[str, typer.Argument(metavar="NAME|CRON", help="A schedule, or cron text.")],
    tz: Annotated[str, typer.Option(help="The time zone of cron text.")] = "UTC",
    count: Annotated[int, typer.Option(min=1, max=1000, help="How many.")] = 10,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="After this instant; else from now on.")] = None,
) -> None:
    """Show the next slots, in their time zone; changes of daylight saving are marked."""
    from .. import admin

    after = None if since is None else values.instant(since)
    if " " in what.strip() or what.startswith("@"):
        slots = admin.preview(cron=what, tz=tz, count=count, after=after)
    else:
        async with shell.broker() as broker:
            plan = (await broker.schedules.get(what)).schedule
        slots = admin.preview(
            cron=plan.cron, every=plan.every, tz=plan.tz, start=plan.start, end=plan.end, count=count, after=after
        )
    shell.table(slots, ["slot", "local", "note"], empty="no further slot")


@command(app, "delete")
async def delete(shell: Shell, name: Name, yes: Yes = False) -> None:
    """Forget a schedule; its messages stay."""
    async with shell.broker() as broker:
        await broker.schedules.get(name)
        shell.confirm(f"Delete the schedule {name}?", yes=yes)
        await broker.schedules.delete(name)
    shell.done(f"deleted {name}", schedule=name)


@command(app, "tick")
async def tick(
    shell: Shell,
    limit: Annotated[int | None, typer.Option(min=1, help="About so many messages at most.")] = None,
    deadline: Annotated[str, typer.Option(metavar="SECONDS", help="Begin nothing more after so long.")] = "60",
) -> None:
    """Fire what is due, once: for a systemd timer, cron or a function, where no worker runs.

    Schedules in holdfast.yaml are applied first.
    """
    async with shell.broker() as broker:
        await broker.schedules.declare_file()
        added = await broker.schedules.tick(limit=limit, deadline=values.seconds(deadline))
    shell.done(f"fired {added:,} messages", fired=added)


def _row(one: ScheduleInfo) -> dict[str, Any]:
    schedule = one.schedule
    state = "orphaned" if one.orphaned else "paused" if one.paused else "on"
    when = schedule.cron if schedule.cron is not None else f"every {schedule.every:g} s"
    return {
        "name": schedule.name, "queue": schedule.queue, "when": when, "tz": schedule.tz, "next_slot": one.next_slot,
        "last_slot": one.last_slot, "fired": one.fired, "missed": one.missed, "state": state,
    }  # fmt: skip


def _shown(shell: Shell, slot: datetime | None) -> str:
    return "never" if slot is None else moment(slot, utc=shell.utc)
