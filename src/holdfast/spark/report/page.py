"""One self-contained page: what is so now and what is wrong first, then the period, charts with their numbers."""

from __future__ import annotations

from . import course_part, present_part, reasons_part, tables_part, words
from .figures import Before, Figures
from .findings import Finding, findings, heading
from .frame import Html, card, document, icon, note, text_of, tile
from .words import safe


def page(figures: Figures) -> str:
    """The report as HTML."""
    found = findings(figures)
    first = [_problems(found), present_part.present(figures)]
    grid = "halves" if found and figures.present.queues else "stack"
    parts = [_head(figures, found), f'<div class="{grid}">{"".join(first)}</div>']
    if figures.period is None:
        parts.append(note("Nothing ended in this time." if figures.version >= 0 else "The lake is empty."))
    else:
        parts += [
            _tiles(figures),
            course_part.course(figures, figures.period),
            course_part.latencies(figures, figures.period),
            reasons_part.reasons(figures),
            reasons_part.retries(figures),
            tables_part.queues(figures, figures.period),
            tables_part.workers(figures),
            tables_part.days(figures),
        ]
    body = f'{_bar(figures)}<main class="page">{"".join(parts)}</main>{_foot(figures)}'
    return document(f"{heading(found)} · Holdfast report", body)


def _bar(figures: Figures) -> str:
    return (
        f'<header class="bar"><div class="bar-row"><span class="brand">{icon("mark")}Holdfast</span>'
        f'<span class="store mono">{safe(figures.lake)}</span></div></header>'
    )


def _head(figures: Figures, found: list[Finding]) -> str:
    if figures.period is None:
        lead = "no messages"
    else:
        among = words.plural(len(figures.queues), "queue")
        lead = f"{words.plural(figures.ended, 'message')} of {among} ended, {words.span(figures.period)}."
    return (
        f'<div class="head"><div><h1>{safe(heading(found))}</h1><p class="lead">{safe(lead)} '
        f"{safe(_compared(figures))}</p></div></div>"
    )


def _compared(figures: Figures) -> str:
    if figures.period is None:
        return ""
    long = words.duration(figures.period.seconds)
    if figures.before_is_whole:
        return f"Compared with the {long} before."
    return f"The {long} before are not, or not all, in the lake: nothing to compare with."


def _problems(found: list[Finding]) -> str:
    if not found:
        return ""
    rows = "".join(_problem(one) for one in found)
    return card("Needs a look", Html(f"<ul>{rows}</ul>"))


def _problem(one: Finding) -> str:
    sign = icon("problem" if one.tone == "bad" else "watch")
    link = f'<a href="#{one.link}">{safe(one.what)}</a>' if one.link else safe(one.what)
    return f'<li class="problem {one.tone}">{sign}<div><h3>{link}</h3><p>{safe(one.why)}</p></div></li>'


def _tiles(figures: Figures) -> str:
    assert figures.period is not None
    ended, before = figures.ended, figures.of_before()
    sums = {
        name: sum(getattr(one, name) for one in figures.queues)
        for name in ("arrived", "completed", "failed", "dead", "retried")
    }
    total = figures.of("total")
    rate = words.rate_for(ended / figures.period.seconds)
    a_time = words.number(rate.of(ended, figures.period.seconds))
    tiles = [
        tile("arrived", words.number(sums["arrived"]), _against(sums["arrived"], before, "arrived")),
        tile("ended", words.number(ended), _against(ended, before, "ended", f"{a_time} a {rate.name}")),
        tile(
            "dead", words.number(sums["dead"]), _of_ended(sums["dead"], ended, before, "dead"), _if(sums["dead"], "bad")
        ),
        tile(
            "failed",
            words.number(sums["failed"]),
            _of_ended(sums["failed"], ended, before, "failed"),
            _if(sums["failed"], "warn"),
        ),
        tile("took more tries", words.number(sums["retried"]), _of_ended(sums["retried"], ended, before, "retried")),
        tile(
            "end to end, p95",
            words.duration(total.p95) if total else "–",
            _against(total.p95 if total else 0.0, before, "p95", f"p50 {words.duration(total.p50)}" if total else ""),
        ),
    ]
    return f'<div class="tiles">{"".join(tiles)}</div>'


def _if(count: float, tone: str) -> str:
    return tone if count else ""


def _of_ended(count: int, ended: int, before: Before | None, name: str) -> Html:
    return _against(count, before, name, f"{words.share(count, ended)} of what ended" if count else "none")


def _against(now: float, before: Before | None, name: str, said: str = "") -> Html:
    """What is to be said of a number, and how it compares."""
    earlier = _earlier(now, getattr(before, name), name) if before else ""
    return Html("<br>".join(text_of(part) for part in (said, earlier) if part))


def _earlier(now: float, before: float, name: str) -> str:
    if not before:
        return "none before" if now else ""
    shown = words.duration(before) if name == "p95" else words.number(before)
    return f"before {shown} ({words.change(now, before)})"


def _foot(figures: Figures) -> str:
    said = [
        f"Made {words.exact(figures.made_at)} UTC from version {figures.version} of {figures.lake}",
        "Times are UTC",
        "Percentiles are of KLL sketches, their ranks off by about 0.3 %",
        "All numbers: report.json and tables/",
    ]
    return f'<footer class="foot">{"".join(f"<span>{safe(one)}</span>" for one in said)}</footer>'
