"""holdfast message: send, read, show, complete, fail, cancel."""

from __future__ import annotations

from itertools import chain
from typing import Annotated, Any

import msgspec
import typer

from . import values
from .shell import Shell, command, group

app = group("Send, read, settle and look up messages.")

QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="The message.")]
Receipt = Annotated[str, typer.Argument(metavar="RECEIPT", help="As `message read` prints it.")]
COLUMNS = ["id", "status", "priority", "attempts", "enqueued_at", "value", "error"]


@command(app, "send")
async def send(
    shell: Shell,
    queue: QueueName,
    message: Annotated[str, typer.Argument(metavar="JSON|@FILE|-", help="- reads JSON lines from standard input.")],
    priority: Annotated[int, typer.Option(min=0, max=255, help="Higher goes first.")] = 0,
    delay: Annotated[str, typer.Option(metavar="SECONDS", help="Deliver it later: 90, 10m, 2h.")] = "0",
    header: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="May be repeated.")] = None,
    dedup_key: Annotated[str | None, typer.Option(help="A second send with this key adds nothing for a while.")] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Messages per call, for @FILE and -.")] = 1000,
) -> None:
    """Send one message, or one per line of input.

    JSON and @FILE are one message; - and @FILE.jsonl are one per line. A missing queue is created.
    """
    from .. import admin, messages
    from .message_input import Lines

    settings: dict[str, Any] = {"priority": priority, "delay": values.seconds(delay), "dedup_key": dedup_key}
    settings["headers"] = values.pairs(header or [], what="a header") or None
    messages.terms(**settings)
    lines = Lines.of(message)
    if dedup_key and lines.many:
        raise typer.BadParameter("--dedup-key is for one message")
    batches = lines.batches(batch_size)
    first = next(batches, [])  # bad input is refused before a queue is made for it
    async with shell.broker() as broker:
        target = await broker.queue(queue)
        with shell.progress(f"sending to {queue}", total=lines.total) as advance:
            ids: list[str] = []
            for batch in chain([first], batches):
                ids += await admin.send(target, batch, **settings)
                lines.sent = len(ids)
                advance(len(batch))
    shell.done(ids[0] if len(ids) == 1 else f"sent {len(ids):,} messages to {queue}", queue=queue, ids=ids)


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


@command(app, "show")
async def show(shell: Shell, queue: QueueName, id: Id) -> None:
    """Show what is known of a message, whatever its state."""
    from .. import admin

    async with shell.queue(queue) as source:
        shell.fields(msgspec.structs.asdict(await admin.message(source, id)))


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


@command(app, "cancel")
async def cancel(shell: Shell, queue: QueueName, id: Id) -> None:
    """Cancel a message that waits; not one that is held."""
    from ..errors import MessageError

    async with shell.queue(queue) as source:
        if not await source.cancel(id):
            raise MessageError(f"{id} is {await source.status(id)}: only what waits can be cancelled")
    shell.done(f"cancelled {id}", queue=queue, id=id, status="failed")
