"""holdfast pipeline: the jobs on Spark as commands. Spark starts with a job."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import values
from .message import QueueName
from .shell import Shell, Yes, command, group

if TYPE_CHECKING:
    from ..spark.jobs import Progress

app = group("Spark jobs: load queues, run handlers, keep and analyse what finished, play it back.")

Master = Annotated[str | None, typer.Option("--master", help="Where Spark runs, such as local[4] or yarn.")]
Remote = Annotated[str | None, typer.Option("--remote", metavar="URL", help="A Spark Connect server: sc://host:15002.")]
Conf = Annotated[list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark; repeatable.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]
LakePlace = Annotated[str, typer.Argument(metavar="LAKE", help="The folder or bucket of the lake.")]
Days = Annotated[int | None, typer.Option("--keep-days", min=1, help="Drop days (UTC) older than so many.")]
Time = typer.Option(metavar="TIME", help="Such as 2026-01-31T12:00:00; UTC unless it says otherwise.")


@contextmanager
def spark_for(
    shell: Shell, job: str, master: str | None, conf: list[str] | None, remote: str | None = None
) -> Iterator[tuple[Any, Any]]:
    """The session of one job, and whom it tells how far it is."""
    from ..spark.jobs import session

    spark = session(master, values.pairs(conf or [], what="--conf"), name=f"holdfast {job}", remote=remote)
    try:
        with watched(shell) as tell:
            yield spark, tell
    finally:
        spark.stop()


@contextmanager
def watched(shell: Shell) -> Iterator[Callable[[Progress], None]]:
    """A line on stderr that changes while a person watches."""
    if shell.json or not sys.stderr.isatty():
        yield lambda progress: None
        return
    from rich.console import Console

    with Console(stderr=True).status("starting Spark") as status:
        yield lambda progress: status.update(line_of(progress))


def line_of(progress: Progress) -> str:
    """How far a job is, in a line."""
    parts = [f"{progress.doing}: {progress.done:,}"]
    if progress.total is not None:
        parts[0] += f" of {progress.total:,}"
    if progress.rate is not None:
        parts.append(f"{progress.rate:,.1f}/s")
    if progress.lag is not None:
        parts.append(f"oldest waits {progress.lag:,.0f} s")
    return ", ".join(parts)


def told(shell: Shell, sentence: str, summary: Any) -> None:
    """What a job did: a sentence and its figures, or one document."""
    import msgspec

    facts = msgspec.structs.asdict(summary)
    shell.done(sentence, **facts)
    if not shell.json:
        shell.fields({name: round(value, 2) if name == "seconds" else value for name, value in facts.items()})


@command(app, "ingest")
def ingest(
    shell: Shell,
    source: Annotated[str, typer.Argument(help="Files or a folder that Spark can read; with --sql a query.")],
    queue: QueueName,
    format: Annotated[str | None, typer.Option(help="csv, json, parquet, text …; known by its ending.")] = None,
    option: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="Of that format; repeatable.")] = None,
    schema: Annotated[str | None, typer.Option(help="Such as 'to string, size int'; guessed otherwise.")] = None,
    sql: Annotated[bool, typer.Option("--sql", help="SOURCE is a query of Spark SQL.")] = False,
    value: Annotated[str | None, typer.Option(metavar="COLUMN", help="The value; all other columns otherwise.")] = None,
    value_as: Annotated[str | None, typer.Option(metavar="KIND", help="That column is json, text or raw.")] = None,
    priority: Annotated[str | None, typer.Option(metavar="COLUMN", help="A column, or a number.")] = None,
    header: Annotated[list[str] | None, typer.Option(metavar="NAME=COLUMN", help="A header; repeatable.")] = None,
    deliver_at: Annotated[str | None, typer.Option(metavar="COLUMN", help="When it is due.")] = None,
    dedup_key: Annotated[str | None, typer.Option(metavar="COLUMN", help="Its dedup key.")] = None,
    type: Annotated[str | None, typer.Option(metavar="MODULE:TYPE", help="What every value must be.")] = None,
    rejects: Annotated[str | None, typer.Option(metavar="FOLDER", help="For rows that cannot be messages.")] = None,
    max_rejects: Annotated[
        int | None, typer.Option(min=0, help="Fail when more rows are bad; 0 without --rejects.")
    ] = None,
    key: Annotated[str | None, typer.Option(help="Names this load; loading it again adds nothing.")] = None,
    checkpoint: Annotated[str | None, typer.Option(metavar="FOLDER", help="Only files new since then.")] = None,
    dry_run: DryRun = False,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
) -> None:
    """Load a table or files into a queue.

    Rows that cannot be messages go to a reject table with the reason, and without one fail the load; the others arrive
    once. A line of JSON is the value as it is; a record of CSV becomes an object.
    """
    from ..spark import jobs

    rank = int(priority) if priority and priority.isdigit() else priority
    pairs = {"options": option, "headers": header}
    said: dict[str, Any] = {name: values.pairs(texts, what=f"--{name}") for name, texts in pairs.items() if texts}
    said |= {"format": format, "schema": schema, "type": type, "value": value, "value_as": value_as}
    with spark_for(shell, "ingest", master, conf, remote) as (spark, tell):
        done = jobs.ingest(
            spark, spark.sql(source) if sql else source, queue, url=shell.url, rejects=rejects,
            max_rejects=max_rejects, key=key, checkpoint=checkpoint, dry_run=dry_run, dedup_key=dedup_key,
            priority=rank, deliver_at=deliver_at, tell=tell, **said,
        )  # fmt: skip
    what = f"would add {done.accepted:,}" if dry_run else f"added {done.added:,}"
    told(shell, f"{what} messages to {queue}, {done.rejected:,} rejected", done)


@command(app, "process")
def process(
    shell: Shell,
    queue: QueueName,
    handler: Annotated[str, typer.Argument(metavar="MODULE:HANDLER", help="A function, handler or app: tasks:send.")],
    type: Annotated[str | None, typer.Option(metavar="MODULE:TYPE", help="What a plain function wants.")] = None,
    tasks: Annotated[int | None, typer.Option(min=1, help="Workers at once; as many as Spark has cores.")] = None,
    concurrency: Annotated[int | None, typer.Option(min=1, help="Messages at once in each worker.")] = None,
    timeout: Annotated[str | None, typer.Option(metavar="SECONDS", help="For one attempt, such as 30 or 2m.")] = None,
    seconds: Annotated[str | None, typer.Option(metavar="SECONDS", help="Stop after so long, such as 10m.")] = None,
    retries: Annotated[bool, typer.Option(help="Wait for messages that wait for a retry.")] = True,
    forever: Annotated[bool, typer.Option("--forever", help="Go on when the queue is empty.")] = False,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
) -> None:
    """Run the handlers that workers run on Spark's executors, until the queue is empty."""
    from ..spark import jobs

    limits = {"timeout": timeout, "seconds": seconds}
    times = {name: None if text is None else values.seconds(text) for name, text in limits.items()}
    with spark_for(shell, "process", master, conf, remote) as (spark, tell):
        done = jobs.process(
            spark, queue, handler, url=shell.url, type=type, tasks=tasks, retries=retries, forever=forever,
            concurrency=concurrency, tell=tell, **times,
        )  # fmt: skip
    told(shell, f"{queue}: {done.completed:,} completed, {done.dead:,} dead, {done.left:,} left", done)


@command(app, "lake")
def lake(
    shell: Shell,
    names: Annotated[list[str], typer.Argument(metavar="[QUEUE]... LAKE", help="Queues (none: all), then the lake.")],
    keep_days: Days = None,
    full: Annotated[bool, typer.Option("--full", help="Compare with the whole lake, not the last hours.")] = False,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
) -> None:
    """Keep finished and dead messages as Delta tables, in a folder or a bucket.

    Each message once: running it again adds only what is new.
    """
    from ..spark import jobs

    with spark_for(shell, "lake", master, conf, remote) as (spark, tell):
        done = jobs.lake(spark, names[:-1], names[-1], url=shell.url, keep_days=keep_days, full=full, tell=tell)
    told(shell, f"added {done.added:,} messages to {done.lake}, which now has {done.rows:,}", done)


@command(app, "table")
def table(
    shell: Shell,
    queue: QueueName,
    table: Annotated[str, typer.Argument(metavar="TABLE", help="The folder or bucket of the table.")],
    type: Annotated[str, typer.Option(metavar="MODULE:TYPE", help="What every value is: its fields are the columns.")],
    format: Annotated[str, typer.Option(help="delta or parquet.")] = "delta",
    keep: Annotated[list[str] | None, typer.Option(metavar="COLUMN", help="Of the message; repeatable.")] = None,
    by_day: Annotated[bool, typer.Option("--by-day", help="Divide the files by day (UTC).")] = False,
    consumer: Annotated[str | None, typer.Option(help="A name for two jobs at once on one table.")] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Messages of one commit, at most.")] = None,
    tasks: Annotated[int | None, typer.Option(min=1, help="Tasks at once, where there is work for them.")] = None,
    seconds: Annotated[str | None, typer.Option(metavar="SECONDS", help="Stop after so long, such as 10m.")] = None,
    forever: Annotated[bool, typer.Option("--forever", help="Go on when the queue is empty.")] = False,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
) -> None:
    """Make a table of a queue: a row for each message, a column for each field of its type.

    Each message once; messages that cannot be read become dead letters with the reason.
    """
    from ..spark import jobs

    given = {"keep": keep, "batch": batch, "seconds": None if seconds is None else values.seconds(seconds)}
    said: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    with spark_for(shell, "table", master, conf, remote) as (spark, tell):
        done = jobs.table(
            spark, queue, table, type, url=shell.url, format=format, by_day=by_day, consumer=consumer,  # type: ignore[arg-type]  # of the format: it is checked there
            tasks=tasks, forever=forever, tell=tell, **said,
        )  # fmt: skip
    told(shell, f"added {done.rows:,} rows to {done.table}, {done.dead:,} messages could not be read", done)


@command(app, "report")
def report(
    shell: Shell,
    lake: LakePlace,
    out: Annotated[str, typer.Argument(help="The folder for report.html, report.json and tables/.")],
    queue: Annotated[list[str] | None, typer.Option(help="Only this queue; may be repeated.")] = None,
    since: Annotated[str | None, Time] = None,
    until: Annotated[str | None, Time] = None,
    no_payloads: Annotated[bool, typer.Option("--no-payloads", help="Show no payloads of messages.")] = False,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
) -> None:
    """Measure a lake: what came and ended, latencies, workers, why messages died.

    Writes one page with charts, and the same numbers as tables.
    """
    from ..spark import jobs

    first, end = (None if text is None else values.instant(text) for text in (since, until))
    with spark_for(shell, "report", master, conf, remote) as (spark, tell):
        done = jobs.report(
            spark, lake, out, queues=queue, since=first, until=end, url=shell.url,
            payloads=not no_payloads, tell=tell,
        )  # fmt: skip
    told(shell, f"{done.messages:,} messages of {done.queues} queues: open {done.page}", done)


@command(app, "compact")
def compact(
    shell: Shell,
    lake: LakePlace,
    keep_days: Days = None,
    keep_versions: Annotated[
        str, typer.Option(metavar="SECONDS", help="How long readers may lag, such as 24h.")
    ] = "24h",
    dry_run: DryRun = False,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
) -> None:
    """Merge the small files of a lake, drop old days, delete what no version needs any more."""
    from ..spark import jobs

    age = values.seconds(keep_versions)
    with spark_for(shell, "compact", master, conf, remote) as (spark, tell):
        done = jobs.compact(spark, lake, keep_days=keep_days, keep_versions=age, dry_run=dry_run, tell=tell)
    would = "would merge" if dry_run else "merged"
    told(shell, f"{would} {done.merged:,} files into {done.into:,}, {done.swept:,} deleted", done)


@command(app, "convert")
def convert(shell: Shell, lake: LakePlace, master: Master = None, remote: Remote = None, conf: Conf = None) -> None:
    """Make a lake of 0.1.0 one of Delta tables, where it lies."""
    from ..spark import jobs

    with spark_for(shell, "convert", master, conf, remote) as (spark, tell):
        done = jobs.convert(spark, lake, tell=tell)
    told(shell, f"{done.lake} has {done.rows:,} messages as Delta tables", done)


@command(app, "replay")
def replay(
    shell: Shell,
    lake: Annotated[str | None, typer.Argument(metavar="LAKE", help="The lake; or say --dead.")] = None,
    dead: Annotated[str | None, typer.Option(metavar="QUEUE", help="The dead letters of this queue instead.")] = None,
    to: Annotated[
        str | None, typer.Option(metavar="QUEUE", help="Into this queue; each into its own otherwise.")
    ] = None,
    queue: Annotated[list[str] | None, typer.Option(help="Only of this queue; may be repeated.")] = None,
    status: Annotated[str | None, typer.Option(help="Only completed, failed or dead ones.")] = None,
    since: Annotated[str | None, Time] = None,
    until: Annotated[str | None, Time] = None,
    reason: Annotated[str | None, typer.Option(help="A fingerprint of the report, or a part of the error.")] = None,
    where: Annotated[str | None, typer.Option(metavar="SQL", help="A condition, such as 'priority > 5'.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many, the oldest first.")] = None,
    rate: Annotated[float | None, typer.Option(help="At most so many a second.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Also what was replayed from this lake before.")] = False,
    dry_run: DryRun = False,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
) -> None:
    """Send finished messages of a lake, or dead letters, again.

    Each once: repeating it adds nothing.
    """
    from ..spark import jobs

    first, end = (None if text is None else values.instant(text) for text in (since, until))
    with spark_for(shell, "replay", master, conf, remote) as (spark, tell):
        done = jobs.replay(
            spark, lake, dead=dead, to=to, queues=queue, url=shell.url, rate=rate, again=again, dry_run=dry_run,
            status=status, since=first, until=end, reason=reason, where=where, limit=limit, tell=tell,
        )  # fmt: skip
    would = "would replay" if dry_run else "replayed"
    told(shell, f"{would} {done.replayed:,} messages of {done.source}", done)


@command(app, "consumers")
async def consumers(
    shell: Shell, queue: Annotated[str | None, typer.Argument(metavar="QUEUE", help="Only of this queue.")] = None
) -> None:
    """Show who reads queues as streams: the owner, what it holds, and how far it is behind."""
    import msgspec

    from .. import admin

    async with shell.broker() as broker:
        found = await admin.consumers(broker, None if queue is None else [queue])
    rows = [msgspec.structs.asdict(each) for each in found]
    shell.table(rows, list(admin.ConsumerReport.__struct_fields__), empty="no stream has read a queue yet")


@command(app, "release")
def release(
    shell: Shell,
    queue: QueueName,
    consumer: Annotated[str, typer.Argument(help="The consumer of a stream that will not come back.")],
    force: Annotated[bool, typer.Option("--force", help="Also while its query seems alive.")] = False,
    yes: Yes = False,
) -> None:
    """Give back what a stream has claimed. Its checkpoint is of no use afterwards."""
    from ..spark import jobs

    shell.confirm(f"Give back the claims of {consumer}? Its checkpoint fails afterwards.", yes=yes)
    done = jobs.release(queue, consumer, url=shell.url, force=force)
    told(shell, f"{done.released:,} messages went back to {queue}", done)
