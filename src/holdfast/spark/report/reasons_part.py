"""Why messages died or failed, each reason with its last message; and what is known of tries that did not succeed."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from . import words
from .figures import Figures, Reason
from .frame import MOST_SHOWN, Cell, Head, Html, card, code, command, count, folded, note, sub, table, toned
from .words import safe

_TONES = {"dead": "bad", "failed": "warn"}


def reasons(figures: Figures) -> str:
    """The most frequent first; the first ones with their last message."""
    if not figures.reasons:
        return card("Why messages died", Html('<p class="body">No message ended with an error.</p>'), id="reasons")
    shown = "".join(_reason(one, figures) for one in figures.reasons[:MOST_SHOWN])
    rest = figures.reasons[MOST_SHOWN:]
    more = f'<div class="body">{folded(f"{len(rest)} more", _rest(rest))}</div>' if rest else ""
    said = "errors that differ only in numbers, ids and quoted words are one reason"
    return card("Why messages died", Html(f"{shown}{more}"), note=said, id="reasons")


def _reason(one: Reason, figures: Figures) -> str:
    tone = _TONES.get(one.status, "info")
    earlier = words.number(one.before) if one.before else "none"
    before = f", {earlier} in the period before" if figures.before_is_whole else ""
    times = f"first {words.exact(one.first)}, last {words.exact(one.last)} UTC{before}"
    return (
        f'<div class="reason"><div class="what"><p class="count {tone}"><strong>{words.number(one.count)}</strong> '
        f"{safe(one.status)} in <b>{safe(one.queue)}</b></p><h3>{safe(one.reason)}</h3>"
        f'<p class="sub">{safe(times)}</p></div><div class="stack">{_sample(one)}{_again(one, figures)}</div></div>'
    )


def _sample(one: Reason) -> str:
    by = f", by {one.worker}" if one.worker else ""
    attempts = words.plural(one.attempts, "attempt")
    head = f"<p>The last: <code>{safe(one.example)}</code> after {safe(attempts)}{safe(by)}</p>"
    headline, _, rest = one.error.partition("\n")
    parts = [f'<p class="mono said">{safe(headline)}</p>' if headline != one.reason or not rest else ""]
    if rest.strip():
        parts.append(folded("Its last traceback", code(one.error, "The last traceback")))
    else:
        parts.append('<p class="sub">The error came without a traceback.</p>')
    if one.value is not None:
        parts.append(folded("Its payload", code(one.value, "The payload")))
    return head + "".join(parts)


def _again(one: Reason, figures: Figures) -> str:
    return f'<p class="sub">{_HOW[one.status == "dead"]}</p>{command(replay_command(one, figures))}'


_HOW = {
    True: "Send them again, once what was wrong is repaired (add <code>--dry-run</code> to see how many):",
    False: "Send copies of them again from the lake (add <code>--dry-run</code> to see how many):",
}


def replay_command(one: Reason, figures: Figures) -> str:
    """What sends these messages again: dead letters of the store, others as copies from the lake."""
    url = ["--url", figures.present.store] if _is_whole(figures.present.store) else []
    if one.status == "dead":
        line = ["holdfast", "pipeline", "replay", "--dead", one.queue, "--reason", one.fingerprint, *url]
    else:
        chosen = ["--queue", one.queue, "--status", one.status, "--reason", one.fingerprint]
        line = ["holdfast", "pipeline", "replay", figures.lake, *chosen, *url]
    return shlex.join(line)


def _is_whole(store: str) -> bool:
    """Whether what is shown of a URL opens the store: a folder's does, others may lack a secret or an endpoint."""
    return store.startswith("file://")


def _rest(rest: Sequence[Reason]) -> Html:
    heads = [
        Head("messages", "n"),
        Head("reason"),
        Head("queue"),
        Head("ended as", "mid"),
        Head("last (UTC)", "mid"),
        Head("fingerprint", "mid"),
    ]
    rows: list[list[Cell]] = [
        [words.number(one.count), one.reason, one.queue, one.status, words.exact(one.last), one.fingerprint]
        for one in rest
    ]
    return table(heads, rows, label="More reasons", key=False)


# ---------------------------------------------------------------------- tries


def retries(figures: Figures) -> str:
    """Messages by the number of their attempts, and what waits for the next one."""
    late = sum(one.completed for one in figures.tries if one.attempts > 1)
    body = f"{_by_attempts(figures)}{_now(figures)}"
    said = f"{words.plural(late, 'message')} completed after more than one attempt"
    return card("Errors that passed", Html(f"{body}<footer>{_NOT_KEPT}</footer>"), note=said, id="retries")


_NOT_KEPT = (
    "What those attempts died of is not in the lake: a store keeps a message's last error, and none of a message that "
    "completed. The events <code>message.retry</code> have them, in the log of the workers."
)


def _by_attempts(figures: Figures) -> str:
    names = sorted({one.queue for one in figures.tries if one.attempts > 1})
    if not names:
        return '<p class="body">Every message ended at its first attempt.</p>'
    most = min(max(one.attempts for one in figures.tries), 5)
    heads = [Head("completed at attempt"), *(Head(str(each), "n" if each < 3 else "n mid") for each in range(1, most))]
    heads += [
        Head(f"{most} or later" if most == 5 else str(most), "n mid" if most > 2 else "n"),
        Head("died or failed", "n"),
    ]
    rows: list[list[Cell]] = []
    for name in names:
        own = [one for one in figures.tries if one.queue == name]
        at = [
            sum(one.completed for one in own if min(max(one.attempts, 1), most) == each) for each in range(1, most + 1)
        ]
        lost = sum(one.failed + one.dead for one in own)
        cells: list[Cell] = [count(each, words.number(each), "warn" if place else "") for place, each in enumerate(at)]
        rows.append([name, *cells, count(lost, words.number(lost), "bad")])
    return table(heads, rows, label="Messages by the attempt that completed them")


def _now(figures: Figures) -> str:
    waiting = sum(one.retry for one in figures.present.queues)
    if not waiting:
        return ""
    heads = [Head("waiting for a retry now"), Head("of it", "n"), Head("the last one's error", "mid")]
    rows = [
        [
            sub(one.reason, f"{one.queue}, attempt {one.attempt}"),
            toned(words.number(one.count), "warn"),
            folded(one.example, code(one.error, "The error")),
        ]
        for one in figures.present.retrying
    ]
    looked = figures.present.retrying_of
    partly = (
        note(f"Of the {words.number(waiting)} that wait for a retry {words.number(looked)} were looked at.")
        if looked < waiting
        else ""
    )
    return table(heads, rows, label="Waiting for a retry now") + (f'<div class="body">{partly}</div>' if partly else "")
