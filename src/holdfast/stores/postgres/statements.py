"""Statements live in `sql/*.sql`. Loading one puts the quoted names of schema and tables into its `{marks}`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from . import names

_MARK = re.compile(r"\{([a-z_]+)\}")
_COMMENT = re.compile(r"^\s*--.*\n", re.MULTILINE)


# What statements say of the column `history`: of a schema that has it, and of one of the version before.
_WITH_HISTORY = {
    "history": ", history",
    "q_history": ", q.history",
    "m_history": ", m.history",
    "f_history": ", f.history",
    "history_or_null": ", history::text",
    "history_text": "history::text",
    "tried": ", CASE WHEN action = 1 THEN"
    " {schema}.with_attempt(held.history, held.claimed_at, t.now, held.by, new_error) ELSE held.history END AS after",
    "after": ", after",
    "expired": ", history = CASE WHEN c.token IS NULL THEN q.history"
    " ELSE {schema}.with_attempt(q.history, q.claimed_at, q.visible_at, q.worker, 'lease expired') END",
}
_WITHOUT_HISTORY = dict.fromkeys(_WITH_HISTORY, "") | {
    "m_history": ", NULL::jsonb AS history",
    "f_history": ", NULL::jsonb AS history",
    "history_or_null": ", NULL::text AS history",
    "history_text": "NULL::text",
}


@cache
def text(name: str) -> str:
    """A file as it is."""
    return (files(__package__) / "sql" / f"{name}.sql").read_text("utf-8")


def filled(sql: str, marks: Mapping[str, str]) -> str:
    """The statement with its marks filled in; an unknown mark is a mistake of ours."""
    return _MARK.sub(lambda match: marks[match[1]], sql)


def migrations() -> list[str]:
    """Their names in order, such as `001_tables`."""
    folder = files(__package__) / "sql" / "migrations"
    return sorted(file.name.removesuffix(".sql") for file in folder.iterdir() if file.name.endswith(".sql"))


class Statements:
    """The statements of one schema, or of one queue in it, ready to be sent."""

    def __init__(self, schema: str, queue: str | None = None, *, history: bool = True) -> None:
        self.schema = schema
        self.slug = "" if queue is None else names.slug(queue)
        self.history = history  # whether the tables have that column: it came with the last migration
        self._marks = {"schema": names.quoted(schema), "schema_text": names.literal(schema)}
        kept = _WITH_HISTORY if history else _WITHOUT_HISTORY
        self._marks |= {mark: filled(text, self._marks) for mark, text in kept.items()}
        if queue is not None:
            own = names.tables(schema, queue)
            self._marks |= own | {f"{kind}_text": names.literal(name) for kind, name in own.items()}
            self._marks |= {"slug_text": names.literal(self.slug), "queue_text": names.literal(queue)}
        self._ready: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        ready = self._ready.get(name)
        if ready is None:
            ready = self._ready[name] = filled(_COMMENT.sub("", text(name)).strip(), self._marks)
        return ready

    def whole(self, name: str, **more: str) -> str:
        """A file of several statements, with its comments."""
        return filled(text(name), {**self._marks, **more})
