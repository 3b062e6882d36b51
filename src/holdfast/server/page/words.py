"""Numbers, spans and instants in words, as every page writes them. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

STATES = {  # as a store calls a state, and as people do
    "pending": "ready",
    "ready": "ready",
    "delayed": "delayed",
    "processing": "running",
    "retry": "retry",
    "dead": "dead",
    "completed": "done",
    "failed": "failed",
    "archive": "archive",
}

_DONE = {  # what an action says once it is done; `{}` is how many
    "paused": "Paused: nothing more is given out.",
    "resumed": "Resumed.",
    "purged": "{} waiting messages removed.",
    "replayed": "{} messages went back into their queue.",
    "copied": "{} messages were copied back into their queue.",
    "deleted": "{} messages deleted.",
    "cancelled": "{} messages cancelled.",
    "taken": "{} messages taken back: somebody else can have them at once.",
    "changed": "It is changed, under its id.",
    "held": "Nothing was changed: a worker has it by now, or it has ended.",
    "edited": "It is enqueued as you wrote it.",
    "released": "{} messages went back into their queue, for others.",
    "stopped": "Stopped: what was done stays done.",
    "set": "The settings are changed; they hold from the next claim on.",
    "triggered": "Its message is enqueued.",
    "backfilled": "{} slots have their messages now.",
    "forgotten": "The schedule is deleted; its messages stay.",
}


def state(status: str) -> str:
    return STATES.get(status, status)


def number(value: float | None) -> str:
    """With commas; a dash for what is not known."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"


def rate(value: float | None) -> str:
    """A second; small ones with the figures that tell them from nothing."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 or not value else f"{value:.2g}"


def duration(seconds: float | None) -> str:
    """Two units at most."""
    if seconds is None:
        return "–"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 and seconds != int(seconds) else f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds // 60:.0f} min"
    if seconds < 2 * 86400:
        return f"{seconds // 3600:.0f} h {seconds % 3600 // 60:.0f} min"
    return f"{seconds // 86400:,.0f} d"


def moment(seconds: float) -> datetime:
    """Of an instant as stores keep it."""
    return datetime.fromtimestamp(seconds, UTC)


def ago(moment: datetime, now: datetime) -> str:
    seconds = (now - moment).total_seconds()
    text = duration(float(round(abs(seconds))))
    return f"in {text}" if seconds < 0 else f"{text} ago"


def exact(moment: datetime) -> str:
    """To the millisecond, for pointing at."""
    return f"{moment.astimezone(UTC):%a %Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03d} UTC"


def iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def clock(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%H:%M:%S}.{moment.microsecond // 1000:03d}"


def when(moment: datetime, now: datetime | None) -> str:
    """The minute, with its day where that is another one."""
    moment = moment.astimezone(UTC)
    is_today = now is not None and moment.date() == now.astimezone(UTC).date()
    return f"{moment:%H:%M}" if is_today else f"{moment:%Y-%m-%d %H:%M}"


def plural(count: int, one: str, many: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def tail(id: str) -> str:
    """The end of an id tells it from its neighbours."""
    return f"…{id[-6:]}"


def done(what: str, count: str) -> str | None:
    """What an action says; None for words that are not ours."""
    said = _DONE.get(what)
    if said is None or not (count or "0").isdecimal():
        return None
    return said.format(number(int(count or "0")))
