"""holdfast message: send, read, show, complete, fail, cancel."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from . import values
from .shell import Shell, command, group

app = group("Send, read, settle and look up messages.")

QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="The message.")]
Receipt = Annotated[str, typer.Argument(metavar="RECEIPT", help="As `message read` prints it.")]
Seconds = typer.Option(parser=values.seconds, metavar="SECONDS")
COLUMNS = ["id", "status", "priority", "attempts", "enqueued_at", "value", "error"]


@command(app, "send")
async def send(
    shell: Shell,
    queue: QueueName,
    message: Annotated[str, typer.Argument(metavar="JSON|@FILE|-", help="- reads JSON lines from standard input.")],
    priority: Annotated[int, typer.Option(min=0, max=255, help="Higher goes first.")] = 0,
    delay: Annotated[float, Seconds] = 0.0,
    header: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="May be repeated.")] = None,
    dedup_key: Annotated[str | None, typer.Option(help="A second send with this key adds nothing for a while.")] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Messages per call, for @FILE and -.")] = 1000,
) -> None:
    """Send one message (JSON or @FILE), or one per line (@FILE.jsonl or -). A missing queue is created."""
    from .. import admin
    from .lines import Lines

    settings: dict[str, Any] = {"priority": priority, "delay": delay, "dedup_key": dedup_key}
    settings["headers"] = values.pairs(header or [], what="a header") or None
    lines = Lines.of(message)
    if dedup_key and lines.many:
        raise typer.BadParameter("--dedup-key is for one message")
    async with shell.broker() as broker:
        target = await broker.queue(queue)
        with shell.progress(f"sending to {queue}", total=lines.total) as advance:
            ids: list[str] = []
            for batch in lines.batches(batch_size):
                ids += await admin.send(target, batch, **settings)
                lines.sent = len(ids)
                advance(len(batch))
    shell.done(ids[0] if len(ids) == 1 else f"sent {len(ids):,} messages to {queue}", queue=queue, ids=ids)


@command(app, "read")
async def read(
    shell: Shell,
    queue: QueueName,
    count: Annotated[int, typer.Option(min=1, help="At most so many.")] = 1,
    lease: Annotated[float | None, Seconds] = None,
    wait: Annotated[float, Seconds] = 0.0,
) -> None:
    """Lease messages and print them with their receipts; settle each before its lease ends."""
    from .. import admin

    async with shell.queue(queue) as source:
        held = await admin.read(source, count, lease=lease, wait=wait)
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
    retry_in: Annotated[float | None, Seconds] = None,
) -> None:
    """Fail a message that `read` leased: it is tried again later, or dead after its last attempt."""
    from ..deliveries import read_receipt

    async with shell.queue(queue) as source:
        await source.fail(receipt, error, retry_in=retry_in)
        lease = read_receipt(receipt)
        status = await source.status(lease.id if lease else receipt)
    shell.done(f"failed; now {status}", queue=queue, receipt=receipt, status=status)


@command(app, "cancel")
async def cancel(shell: Shell, queue: QueueName, id: Id) -> None:
    """Cancel a message that waits; one that is held or finished is left alone (exit 1)."""
    async with shell.queue(queue) as source:
        await source.cancel(id)
    shell.done(f"cancelled {id}", queue=queue, id=id, status="failed")
