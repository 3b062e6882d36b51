"""holdfast message: send, read, list, peek, show, complete, fail, change, take-back, cancel."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import typer

from . import values
from .shell import Shell, command, group

if TYPE_CHECKING:
    from ..once import Once
    from ..stores.records import Dedup

app = group("Send, read, settle and look up messages.")

QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="The message.")]
Receipt = Annotated[str, typer.Argument(metavar="RECEIPT", help="As `message read` prints it.")]
COLUMNS = ["id", "status", "priority", "attempts", "enqueued_at", "value", "error"]
LIVE_COLUMNS = ["id", "status", "priority", "attempts", "enqueued_at", "visible_at", "value", "error"]


@command(app, "send")
async def send(
    shell: Shell,
    queue: QueueName,
    message: Annotated[str, typer.Argument(metavar="JSON|@FILE|-", help="- reads JSON lines from standard input.")],
    priority: Annotated[int, typer.Option(min=0, max=255, help="Higher goes first.")] = 0,
    delay: Annotated[str, typer.Option(metavar="SECONDS", help="Deliver it later: 90, 10m, 2h.")] = "0",
    header: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="May be repeated.")] = None,
    expires: Annotated[str | None, typer.Option(metavar="SECONDS|TIME", help="Not after: 90, 10m, a time.")] = None,
    dedup_key: Annotated[str | None, typer.Option(help="A second send with this key adds nothing for a while.")] = None,
    dedup: Annotated[
        Literal["window", "alive", "waiting"],
        typer.Option(help="How long --dedup-key holds: alive until the message ends, waiting until it is held."),
    ] = "window",
    replace: Annotated[bool, typer.Option("--replace", help="With --dedup: the waiting one becomes this.")] = False,
    report: Annotated[bool, typer.Option("--report", help="Print whether each message is new.")] = False,
    batch_size: Annotated[int, typer.Option(min=1, help="Messages per call, for @FILE and -.")] = 1000,
) -> None:
    """Send one message, or one per line of input.

    JSON and @FILE are one message; - and @FILE.jsonl are one per line. A missing queue is created.
    """
    from .. import admin, messages
    from .message_input import Lines

    settings: dict[str, Any] = {"priority": priority, "delay": values.seconds(delay), "dedup_key": dedup_key}
    settings["headers"] = values.pairs(header or [], what="a header") or None
    settings["expires"] = None if expires is None else values.end(expires)
    messages.terms(**settings)
    how = _once(dedup_key, dedup, replace, report)
    lines = Lines.of(message)
    if dedup_key and lines.many:
        raise typer.BadParameter("--dedup-key is for one message")
    batches = lines.batches(batch_size)
    first = next(batches, [])  # bad input is refused before a queue is made for it
    async with shell.broker() as broker:
        target = await broker.queue(queue)
        with shell.progress(f"sending to {queue}", total=lines.total) as advance:
            made: list[Any] = []
            for batch in chain([first], batches):
                made += await admin.send(target, batch, how, **settings)
                lines.sent = len(made)
                advance(len(batch))
    if report:
        return shell.table([msgspec.structs.asdict(each) for each in made], ["id", "new", "replaced"], empty="nothing")
    shell.ids([each.id for each in made], f"sent {len(made):,} messages to {queue}", queue=queue)


def _once(key: str | None, dedup: Dedup, replace: bool, report: bool) -> Once:
    from ..once import Once

    if key is None and dedup != "window":
        raise typer.BadParameter("--dedup needs a --dedup-key")
    if replace and dedup == "window":
        raise typer.BadParameter("--replace needs --dedup alive or --dedup waiting")
    return Once(dedup=dedup, replace=replace, report=report)


@command(app, "read")
async def read(
    shell: Shell,
    queue: QueueName,
    count: Annotated[int, typer.Option(min=1, help="At most so many.")] = 1,
    lease: Annotated[
        str | None, typer.Option(metavar="SECONDS", help="Hold them so long; else as the queue says.")
    ] = None,
    wait: Annotated[str, typer.Option(metavar="SECONDS", help="Wait so long for the first.")] = "0",
) -> None:
    """Lease messages and print them with receipts.

    A receipt settles its message, from anywhere, before the lease ends.
    """
    from .. import admin

    hold, patience = None if lease is None else values.seconds(lease), values.seconds(wait)
    async with shell.queue(queue) as source:
        held = await admin.read(source, count, lease=hold, wait=patience)
    rows = [msgspec.structs.asdict(one) for one in held]
    if shell.json:
        return shell.document(rows)
    for place, row in enumerate(rows):
        if place:
            shell.done("")
        shell.fields(row)
    if not rows:
        shell.note("nothing to read")


@command(app, "list")
async def list_messages(
    shell: Shell,
    queue: QueueName,
    state: Annotated[
        Literal["ready", "pending", "delayed", "processing", "retry"], typer.Option(help="pending is ready.")
    ] = "ready",
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 100,
    after: Annotated[str | None, typer.Option(metavar="ID", help="Go on after this id.")] = None,
) -> None:
    """List messages that wait or are held, without claiming them.

    By id, oldest first; delayed ones and retries by the time when they are due.
    """
    from .. import admin

    async with shell.queue(queue) as source:
        rows = [msgspec.structs.asdict(one) for one in await admin.live(source, state, limit=limit, after=after)]
    columns = [*LIVE_COLUMNS, "worker"] if state == "processing" else LIVE_COLUMNS
    shell.table(rows, columns, empty=f"nothing is {state}")


@command(app, "peek")
async def peek(
    shell: Shell, queue: QueueName, limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 10
) -> None:
    """List the next messages in the order in which they will be delivered."""
    from .. import admin

    async with shell.queue(queue) as source:
        rows = [msgspec.structs.asdict(one) for one in await admin.next_in_line(source, limit)]
    shell.table(rows, LIVE_COLUMNS, empty="nothing is ready")


@command(app, "show")
async def show(shell: Shell, queue: QueueName, id: Id) -> None:
    """Show what is known of a message, whatever its state."""
    from .. import admin

    async with shell.queue(queue) as source:
        found = msgspec.structs.asdict(await admin.message(source, id))
    tried = [msgspec.structs.asdict(each) for each in found["history"]]
    if shell.json:
        return shell.document(found)
    del found["history"]
    shell.fields(found)
    if tried:
        shell.done("")
        shell.table(tried, ["start", "end", "worker", "error"], empty="")


@command(app, "complete")
async def complete(
    shell: Shell,
    queue: QueueName,
    receipt: Receipt,
    result: Annotated[str | None, typer.Option(metavar="JSON", help="Stored with the message.")] = None,
) -> None:
    """Complete a message that `read` leased."""
    value = None if result is None else values.json_value(result, what="--result")
    async with shell.queue(queue) as source:
        await source.complete(receipt, value)
    shell.done("completed", queue=queue, receipt=receipt, status="completed")


@command(app, "fail")
async def fail(
    shell: Shell,
    queue: QueueName,
    receipt: Receipt,
    error: Annotated[str, typer.Option(help="Why; stored with the message.")] = "failed by hand",
    retry_in: Annotated[str | None, typer.Option(metavar="SECONDS", help="Else as the queue's policy says.")] = None,
) -> None:
    """Fail a message that `read` leased.

    It is tried again later, or dead after its last attempt.
    """
    from ..deliveries import read_receipt

    again = None if retry_in is None else values.seconds(retry_in)
    async with shell.queue(queue) as source:
        await source.fail(receipt, error, retry_in=again)
        lease = read_receipt(receipt)
        status = await source.status(lease.id if lease else receipt)
    shell.done(f"failed; now {status}", queue=queue, receipt=receipt, status=status)


@command(app, "take-back")
async def take_back(
    shell: Shell,
    queue: QueueName,
    id: Annotated[list[str] | None, typer.Argument(metavar="ID", help="One or more.")] = None,
    worker: Annotated[str | None, typer.Option(metavar="NAME", help="Instead of ids: all that it holds.")] = None,
) -> None:
    """End leases now, as if they had expired.

    The holder of such a message has lost it, and it can be claimed again at once. The attempt stays counted.
    """
    if bool(id) == (worker is not None):
        raise typer.BadParameter("give ids, or --worker")
    async with shell.queue(queue) as source:
        count = await source.take_back(id or None, worker=worker)
    shell.done(f"took back {count:,} messages of {queue}", queue=queue, taken_back=count)


@command(app, "change")
async def change(
    shell: Shell,
    queue: QueueName,
    id: Id,
    value: Annotated[str | None, typer.Option(metavar="JSON", help="Another value.")] = None,
    priority: Annotated[int | None, typer.Option(min=0, max=255, help="Higher goes first.")] = None,
    delay: Annotated[str | None, typer.Option(metavar="SECONDS", help="Due so long from now: 0, 90, 10m.")] = None,
) -> None:
    """Change a message that waits: its value, its priority, when it is due. Its id stays."""
    from ..errors import MessageError

    said: dict[str, Any] = {"priority": priority, "delay": None if delay is None else values.seconds(delay)}
    if value is not None:
        said["value"] = values.json_value(value, what="--value")
    if all(each is None for each in (value, priority, delay)):
        raise typer.BadParameter("give --value, --priority or --delay")
    async with shell.queue(queue) as source:
        if not await source.change(id, **said):
            raise MessageError(f"{id} is {await source.status(id)}: only what waits can be changed")
        status = await source.status(id)
    shell.done(f"changed {id}; now {status}", queue=queue, id=id, status=status)


@command(app, "cancel")
async def cancel(
    shell: Shell,
    queue: QueueName,
    id: Id,
    running: Annotated[bool, typer.Option("--running", help="Also one that is held: its holder loses it.")] = False,
) -> None:
    """Cancel a message that waits; with --running also one that is held."""
    from ..errors import MessageError

    async with shell.queue(queue) as source:
        if not await source.cancel(id, running=running):
            raise MessageError(f"{id} is {await source.status(id)}: only what waits can be cancelled")
    shell.done(f"cancelled {id}", queue=queue, id=id, status="failed")
