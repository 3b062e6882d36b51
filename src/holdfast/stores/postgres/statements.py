"""Statements live in `sql/*.sql`. Loading one puts the quoted names of schema and tables into its `{marks}`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from . import names

_MARK = re.compile(r"\{([a-z_]+)\}")
_COMMENT = re.compile(r"^\s*--.*\n", re.MULTILINE)


# What statements say of the column `expires`: of a schema that has it, and of one of the version before.
_WITH_EXPIRES = {
    "expires": ", expires",
    "q_and_expires": ", q.expires",
    "expires_or_null": "expires",
    "q_expires": "q.expires",
    "m_expires": "m.expires",
    "f_expires": "f.expires",
    "b_expires": "b.expires",
    "due_expires": "expires",
    "or_over": " OR coalesce(q.expires <= (SELECT now FROM t), false)",
    "q_alive": " AND (q.expires IS NULL OR q.expires > (SELECT now FROM t))",
    "m_alive": " AND (m.expires IS NULL OR m.expires > (SELECT now FROM t))",
}
NO_EXPIRES = "this schema has no `expires` yet: `holdfast install` raises its format"
_NOTHING = "NULL::timestamptz"
_WITHOUT_EXPIRES = {mark: _NOTHING if text[-7:] == "expires" else "" for mark, text in _WITH_EXPIRES.items()} | {
    "expires": "",
    "q_and_expires": "",
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

    def __init__(self, schema: str, queue: str | None = None, *, expires: bool = True) -> None:
        self.schema = schema
        self.slug = "" if queue is None else names.slug(queue)
        self.expires = expires  # whether the tables have that column: it came with the last migration
        self._marks = {"schema": names.quoted(schema), "schema_text": names.literal(schema)}
        self._marks |= _WITH_EXPIRES if expires else _WITHOUT_EXPIRES
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
