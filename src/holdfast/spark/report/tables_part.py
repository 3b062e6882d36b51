"""By queue, by worker, by day."""

from __future__ import annotations

from collections.abc import Sequence

from . import words
from .charts import spark
from .figures import Figures, QueueFigures, Worker, backlog
from .findings import USUAL
from .frame import MOST_SHOWN, Cell, Head, Html, card, count, folded, soft, sub, table
from .periods import Period

_QUEUES = (
    Head("queue"), Head("arrived", "n mid"), Head("ended", "n"), Head("against before", "n wide"), Head("dead", "n"),
    Head("failed", "n mid"), Head("more tries", "n mid"), Head("rate, mean", "n wide"), Head("rate, busiest", "n wide"),
    Head("p95", "n"), Head("backlog", "n mid"), Head("its course", "wide"),
)  # fmt: skip


def queues(figures: Figures, period: Period) -> str:
    """Those with trouble first, then the busiest."""
    ordered = sorted(figures.queues, key=lambda one: (-one.dead, -one.failed, -one.ended, one.queue))
    rows = [_queue(one, figures, period) for one in ordered]
    shown = table(_QUEUES, rows[:MOST_SHOWN], label="Queues")
    if rest := rows[MOST_SHOWN:]:
        shown = Html(
            f'{shown}<div class="body">{folded(f"{len(rest)} more", table(_QUEUES, rest, label="More queues"))}</div>'
        )
    return card("Queues", shown, note="most deaths first", id="queues")


def _queue(one: QueueFigures, figures: Figures, period: Period) -> list[Cell]:
    before = figures.of_before(one.queue)
    rate = words.rate_for(one.busiest)
    course = backlog([each for each in figures.buckets if each.queue == one.queue], one.backlog_first, period)
    mean, most = (f"{words.number(value * rate.seconds)} a {rate.name}" for value in (one.per_second, one.busiest))
    drawn = spark(
        [float(max(value, 0)) for value in course], "delayed", f"backlog, at most {words.number(max(course))}"
    )
    return [
        one.queue,
        words.number(one.arrived),
        words.number(one.ended),
        words.change(one.ended, before.ended) if before else soft("–"),
        count(one.dead, words.number(one.dead), "bad"),
        count(one.failed, words.number(one.failed), "warn"),
        count(one.retried, words.share(one.retried, one.ended) or "0"),
        mean,
        most,
        words.duration(one.p95) if one.ended else soft("–"),
        count(one.backlog_last, words.number(one.backlog_last)),
        Html(drawn),
    ]


def workers(figures: Figures) -> str:
    """The busiest first, with what makes one differ from the rest."""
    if not figures.workers:
        return ""
    heads = [Head("worker"), Head("ended", "n"), Head("dead, failed", "n"), Head("more tries", "n mid")]
    heads += [Head("run p50", "n mid"), Head("run p95", "n"), Head("busy", "n wide")]
    heads += [Head("first end (UTC)", "wide"), Head("last end (UTC)", "wide")]
    ordered = sorted(figures.workers, key=lambda one: -one.ended)
    rows = [_worker(one, figures) for one in ordered]
    shown = table(heads, rows[:MOST_SHOWN], label="Workers")
    if rest := rows[MOST_SHOWN:]:
        shown = Html(
            f'{shown}<div class="body">{folded(f"{len(rest)} more", table(heads, rest, label="More workers"))}</div>'
        )
    return card("Workers", shown, note=_whole(figures, ordered), id="workers")


def _whole(figures: Figures, found: Sequence[Worker]) -> str:
    without = figures.ended - sum(one.ended for one in found)
    said = "each ended its messages itself; busy: mean number of runs at once"
    return f"{said}; {words.number(without)} messages by others or by nobody" if without > 0 else said


def _worker(one: Worker, figures: Figures) -> list[Cell]:
    assert figures.period is not None
    wrong = one.dead + one.failed
    return [
        Html(f"{sub(one.worker, one.queues)}{_odd(one, figures)}"),
        words.number(one.ended),
        count(wrong, words.number(wrong), "bad"),
        count(one.retried, words.share(one.retried, one.ended) or "0"),
        soft("–") if one.p50 is None else words.duration(one.p50),
        soft("–") if one.p95 is None else words.duration(one.p95),
        words.number(one.busy / max(one.last - one.first, 1.0)) if one.busy else soft("–"),
        words.exact(one.first),
        words.exact(one.last),
    ]


def _odd(one: Worker, figures: Figures) -> str:
    """What a worker has that the others have not."""
    run, ended = figures.of("run"), figures.ended
    wrong = sum(each.dead + each.failed for each in figures.queues)
    signs = []
    if len(figures.workers) > 1 and one.ended >= USUAL.messages:
        if run and one.p95 is not None and one.p95 > USUAL.slow_worker * run.p95:
            signs.append("slow")
        if wrong and (one.dead + one.failed) / one.ended > USUAL.wrong_worker * wrong / ended:
            signs.append("many errors")
    return "".join(f' <span class="pill warn">{sign}</span>' for sign in signs)


def days(figures: Figures) -> str:
    """Percentiles by day: only when there is more than one."""
    found = [one for one in figures.latency if one.day and one.queue and one.metric == "total"]
    if len({one.day for one in found}) < 2:
        return ""
    heads = [
        Head("day (UTC)"),
        Head("queue"),
        Head("messages", "n"),
        *(Head(point, "n") for point in ("p50", "p95", "p99")),
    ]
    ordered = sorted(found, key=lambda one: (one.day, one.queue))
    rows: list[list[Cell]] = [
        [one.day, one.queue, words.number(one.count), *map(words.duration, (one.p50, one.p95, one.p99))]
        for one in ordered
    ]
    shown = table(heads, rows, label="End to end by day and queue", key=False)
    return card("Days", Html(f'<div class="body">{folded("By day", shown)}</div>'), note="end to end", id="days")
