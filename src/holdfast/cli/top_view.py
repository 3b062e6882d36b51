"""What `holdfast top` shows: rows from two looks at a store, what keys do to the view, and the lines. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from ..escaping import one_line
from ..queue_reports import QueueReport
from ..stores.records import Stats
from ..stores.worker_reports import ProcessReport

COLUMNS = {  # what a row has, how it is called, and how wide it is in a terminal of 80
    "name": ("queue", 0),  # the rest
    "pending": ("ready", 7),
    "delayed": ("delayed", 7),
    "processing": ("running", 7),
    "retry": ("retry", 6),
    "dead": ("dead", 6),
    "oldest": ("oldest", 6),
    "incoming": ("in/s", 6),
    "outgoing": ("out/s", 6),
    "workers": ("wk", 3),
}
_LETTERS = {"n": "name", "r": "pending", "d": "dead", "o": "oldest", "i": "incoming", "u": "outgoing", "w": "workers"}
HELP = "q quit  / filter  arrows or n r d o i u w: sort, move  R reverse"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A queue now. Rates are None before the second look, `workers` where nobody reports them."""

    name: str
    paused: bool
    pending: int
    delayed: int
    processing: int
    retry: int
    dead: int
    oldest: float | None
    incoming: float | None
    outgoing: float | None
    workers: int | None


class Look(msgspec.Struct, frozen=True):
    """A store at an instant of a monotonic clock. `processes` are those alive; None: nobody reports them."""

    at: float
    queues: list[QueueReport]
    processes: list[ProcessReport] | None


def rows(now: Look, before: Look | None) -> list[Row]:
    """Every queue, with rates since the look before."""
    old = {} if before is None else {each.name: each.stats for each in before.queues}
    seconds = 0.0 if before is None else now.at - before.at
    return [_row(each, old.get(each.name), seconds, now.processes) for each in now.queues]


def _row(report: QueueReport, old: Stats | None, seconds: float, processes: list[ProcessReport] | None) -> Row:
    new = report.stats
    incoming = outgoing = None
    if old is not None and seconds > 0:
        incoming = max(0, _known(new) - _known(old)) / seconds
        outgoing = max(0, new.completed - old.completed) / seconds
    serving = None
    if processes is not None:
        serving = sum(report.name in each.queues for process in processes for each in process.workers)
    return Row(
        name=report.name, paused=report.paused, pending=new.pending, delayed=new.delayed, processing=new.processing,
        retry=new.retry, dead=new.dead, oldest=new.oldest_age, incoming=incoming, outgoing=outgoing, workers=serving,
    )  # fmt: skip


def _known(stats: Stats) -> int:
    """Every message that ever came: the difference of two is what came in between, unless some were purged."""
    waiting = stats.pending + stats.delayed + stats.processing + stats.retry
    return waiting + stats.dead + stats.completed + stats.failed


class View(msgspec.Struct, frozen=True):
    """How a person looks at it."""

    sort: str = "name"
    is_reversed: bool = False
    filter: str = ""
    is_typing: bool = False
    top: int = 0  # rows above the first that is shown
    is_over: bool = False

    def pressed(self, key: str) -> View:
        """After this key; one that means nothing changes nothing."""
        if key == "ctrl-c":
            return msgspec.structs.replace(self, is_over=True)
        return self._typed(key) if self.is_typing else self._chosen(key)

    def _typed(self, key: str) -> View:
        if key == "enter":
            return msgspec.structs.replace(self, is_typing=False)
        if key == "escape":
            return msgspec.structs.replace(self, is_typing=False, filter="")
        if key == "backspace":
            return msgspec.structs.replace(self, filter=self.filter[:-1], top=0)
        return msgspec.structs.replace(self, filter=self.filter + key, top=0) if len(key) == 1 else self

    def _chosen(self, key: str) -> View:
        if key in _LETTERS:
            return self._sorted_by(_LETTERS[key])
        if key in ("left", "right"):
            names = list(COLUMNS)
            return self._sorted_by(names[(names.index(self.sort) + (1 if key == "right" else -1)) % len(names)])
        changes: dict[str, dict[str, Any]] = {
            "q": {"is_over": True},
            "/": {"is_typing": True},
            "R": {"is_reversed": not self.is_reversed},
            "escape": {"filter": ""},
            "up": {"top": max(0, self.top - 1)},
            "k": {"top": max(0, self.top - 1)},
            "down": {"top": self.top + 1},
            "j": {"top": self.top + 1},
        }
        return msgspec.structs.replace(self, **changes.get(key, {}))

    def _sorted_by(self, column: str) -> View:
        """Names from the first on, numbers from the largest."""
        return msgspec.structs.replace(self, sort=column, is_reversed=False, top=0)

    def chosen(self, found: Sequence[Row]) -> list[Row]:
        """Those that the filter lets through, in order."""
        wanted = sorted((each for each in found if self.filter.lower() in each.name.lower()), key=lambda row: row.name)
        if self.sort == "name":
            return wanted[::-1] if self.is_reversed else wanted
        return sorted(wanted, key=lambda row: _number(getattr(row, self.sort)), reverse=not self.is_reversed)


def _number(value: float | None) -> float:
    return -1.0 if value is None else float(value)


# ---------------------------------------------------------------------- lines


def lines(
    view: View, now: Look, found: Sequence[Row], *, width: int, height: int, title: str, problem: str = ""
) -> list[tuple[str, str]]:
    """Lines of a terminal, each with its style; exactly `height`, none longer than `width`."""
    chosen = view.chosen(found)
    workers = _workers(view, now.processes, width)[: max(0, height // 3)]
    head = [(title, "bold"), (_summary(found, now.processes), ""), (_note(view, problem), "red" if problem else "cyan")]
    head.append((_header(view, width), "reverse"))
    room = max(1, height - len(head) - len(workers) - 1)
    top = min(view.top, max(0, len(chosen) - room))
    shown = [_line(row, width) for row in chosen[top : top + room]]
    if not shown:
        shown = [("no queue has this in its name" if view.filter else "no queues yet", "dim")]
    made = [*head, *shown, *workers]
    made += [("", "")] * (height - 1 - len(made))
    return [(text[:width], style) for text, style in [*made[: height - 1], (HELP, "dim")]]


def _summary(found: Sequence[Row], processes: list[ProcessReport] | None) -> str:
    rates = [f"{name} {_rate(_sum(found, field))}/s" for name, field in (("in", "incoming"), ("out", "outgoing"))]
    return f"{_plural(len(found), 'queue')}, {', '.join(rates)}, {_staff(processes)}"


def _sum(found: Sequence[Row], field: str) -> float | None:
    known = [value for row in found if (value := getattr(row, field)) is not None]
    return sum(known) if known else None


def _staff(processes: list[ProcessReport] | None) -> str:
    if processes is None:
        return "workers are not reported here"
    all_workers = [each for process in processes for each in process.workers]
    busy, slots = sum(each.busy for each in all_workers), sum(each.slots for each in all_workers)
    hosts = _plural(len({each.host for each in processes}), "host")
    return f"{_plural(len(all_workers), 'worker')} on {hosts}, {busy} of {slots} slots busy"


def _plural(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def _note(view: View, problem: str) -> str:
    if problem:
        return one_line(problem)
    return f"filter: {one_line(view.filter)}{'_' if view.is_typing else ''}" if view.filter or view.is_typing else ""


def _name_width(width: int) -> int:
    """What the others leave; in a narrow terminal lines are cut."""
    return max(len("queue "), width - sum(each for _, each in COLUMNS.values()) - len(COLUMNS) + 1)


def _header(view: View, width: int) -> str:
    mark = "^" if view.is_reversed != (view.sort == "name") else "v"
    titles = {field: f"{title}{mark}" if field == view.sort else title for field, (title, _) in COLUMNS.items()}
    rest = [titles[field][: each + 1].rjust(each) for field, (_, each) in COLUMNS.items() if each]
    line = titles["name"].ljust(_name_width(width))
    for text, (_, each) in zip(rest, list(COLUMNS.values())[1:], strict=True):
        line += text.rjust(each + 1)
    return line.ljust(width)


def _line(row: Row, width: int) -> tuple[str, str]:
    name_width = _name_width(width)
    name = f"{row.name} (paused)" if row.paused else row.name
    name = name if len(name) <= name_width else f"{name[: name_width - 1]}…"
    cells = {
        **{field: short(getattr(row, field)) for field in ("pending", "delayed", "processing", "retry", "dead")},
        "oldest": age(row.oldest),
        "incoming": _rate(row.incoming),
        "outgoing": _rate(row.outgoing),
        "workers": "?" if row.workers is None else short(row.workers),
    }
    text = name.ljust(name_width) + "".join(f" {cells[field].rjust(COLUMNS[field][1])}" for field in cells)
    return text, "red" if row.dead else "yellow" if row.retry or row.paused else ""


def _workers(view: View, processes: list[ProcessReport] | None, width: int) -> list[tuple[str, str]]:
    if not processes:
        return []
    found = [
        (f"{each.id} on {process.host} pid {process.pid}", each)
        for process in processes
        for each in process.workers
        if any(view.filter.lower() in queue.lower() for queue in each.queues)
    ]
    made = [("", ""), ("worker".ljust(width // 2) + "    busy  longest  queues", "underline")]
    for who, each in sorted(found, key=lambda pair: -pair[1].busy):
        longest = age(each.running[0].seconds) if each.running else "-"
        who = one_line(who)[: width // 2].ljust(width // 2)
        made.append((f"{who} {f'{each.busy}/{each.slots}':>7} {longest:>8}  {', '.join(each.queues)}", ""))
    return made if found else []


def short(count: int) -> str:
    """A count in at most six places."""
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if count >= size * (100 if unit == "k" else 1):
            return f"{count / size:.3g}{unit}" if count < size * 1000 else f"{count // size}{unit}"
    return str(count)


def age(seconds: float | None) -> str:
    """In the largest unit that leaves a number to look at."""
    if seconds is None:
        return "-"
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.0f}s"


def _rate(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.1f}" if value < 1000 else short(round(value))


def title_of(url: str, interval: float, now: datetime) -> str:
    return one_line(f"holdfast top  {url}  every {interval:g} s  {now:%H:%M:%S}")
