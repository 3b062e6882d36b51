"""The state of the store when the report was made, and how far the lake and the streams are behind it."""

from __future__ import annotations

from . import words
from .figures import Figures
from .frame import Cell, Head, Html, card, count, note, soft, sub, table, tile
from .present import Present, QueueNow, StreamNow
from .words import safe

_QUEUES = (
    Head("queue"),
    Head("ready", "n"),
    Head("oldest ready", "n mid"),
    Head("lake lacks", "n"),
    Head("running", "n wide"),
    Head("delayed", "n wide"),
    Head("retry", "n mid"),
    Head("dead", "n"),
)
_STREAMS = (
    Head("stream"),
    Head("lag", "n"),
    Head("holds", "n"),
    Head("owner", "mid"),
    Head("tries of its batch", "n mid"),
)


def present(figures: Figures) -> str:
    """First of all: the numbers, then by queue and stream."""
    now = figures.present
    if not now.store:
        return note(
            Html(
                "The lake knows what ended, not what waits. For the state and the lag name the store: "
                "<code>holdfast pipeline report … --url URL</code>. "
                f"{safe(_newest(figures))}"
            )
        )
    if not now.queues:
        return note(now.wrong or f"{now.store} has none of these queues.", "warn" if now.wrong else "info")
    body = f'<div class="tiles within">{"".join(_tiles(now))}</div>{_queues(now)}{_streams(now)}'
    wrong = f'<div class="body">{note(now.wrong, "warn")}</div>' if now.wrong else ""
    return card("Now", Html(wrong + body), note=f"{now.store}, {words.exact(now.at)} UTC", id="now")


def _newest(figures: Figures) -> str:
    if figures.period is None:
        return ""
    ago = words.duration(max(figures.made_at - figures.period.end, 0.0))
    return f"The time it measures ended {ago} before it was made."


def _tiles(now: Present) -> list[Html]:
    sums = {
        name: sum(getattr(one, name) for one in now.queues) for name in ("ready", "running", "delayed", "retry", "dead")
    }
    oldest = max((one.oldest for one in now.queues if one.oldest is not None), default=None)
    waited = f"the oldest for {words.duration(oldest)}" if oldest is not None else "nothing waits"
    unseen = sum(one.unseen or 0 for one in now.queues)
    seen = max((one.seen for one in now.queues if one.seen is not None), default=None)
    tiles = [
        tile("ready", words.number(sums["ready"]), waited),
        tile("running", words.number(sums["running"]), f"{words.number(sums['delayed'])} delayed"),
        tile("waiting for a retry", words.number(sums["retry"]), "", "warn" if sums["retry"] else ""),
        tile("dead letters", words.number(sums["dead"]), "in the store", "bad" if sums["dead"] else ""),
        tile(
            "the lake lacks",
            words.number(unseen) if seen is not None and now.counts_waiting else "–",
            f"it has what ended until {words.when(seen)}" if seen is not None else "nothing of this store is in it",
        ),
    ]
    if now.streams:
        lag = max(one.lag for one in now.streams)
        tiles.append(tile("lag of streams", words.number(lag), f"at most; {words.plural(len(now.streams), 'stream')}"))
    return tiles


def _queues(now: Present) -> str:
    rows = sorted(now.queues, key=lambda one: (-one.dead, -one.ready, one.queue))
    return table(_QUEUES, [_queue(one) for one in rows], label="Queues now")


def _queue(one: QueueNow) -> list[Cell]:
    name: Cell = one.queue
    if one.paused:
        name = Html(f'{safe(one.queue)} <span class="pill paused">paused</span>')
    return [
        name,
        count(one.ready, words.number(one.ready)),
        soft("–") if one.oldest is None else words.duration(one.oldest),
        _lacks(one),
        count(one.running, words.number(one.running)),
        count(one.delayed, words.number(one.delayed)),
        count(one.retry, words.number(one.retry), "warn"),
        count(one.dead, words.number(one.dead), "bad"),
    ]


def _lacks(one: QueueNow) -> Cell:
    if one.seen is None:
        return soft("all of it")
    return soft("not known") if one.unseen is None else count(one.unseen, words.number(one.unseen))


def _streams(now: Present) -> str:
    if not now.streams:
        return ""
    rows = [_stream(one) for one in sorted(now.streams, key=lambda one: (-one.lag, one.queue))]
    return table(_STREAMS, rows, label="Spark streams now")


def _stream(one: StreamNow) -> list[Cell]:
    owner: Cell = one.owner if one.owner else count(one.claimed, "nobody", "bad")
    return [
        sub(one.consumer, f"reads {one.queue}"),
        count(one.lag, words.number(one.lag)),
        count(one.claimed, words.number(one.claimed)),
        owner,
        count(max(one.tries - 1, 0), words.number(one.tries), "warn"),
    ]
