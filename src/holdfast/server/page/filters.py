"""The filter of a list of messages, as a link and as a form say it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import msgspec
from litestar import Request

from ...errors import ConfigError
from ...stores.records import View
from ..problems import Refused
from ..replies import holder_of, sees_content
from ..search import Wanted, instant

VIEWS: tuple[tuple[str, View, str], ...] = (  # word of the page, of the store, and the count in `stats`
    ("ready", "ready", "pending"),
    ("running", "processing", "processing"),
    ("delayed", "delayed", "delayed"),
    ("retry", "retry", "retry"),
    ("dead", "dead", "dead"),
    ("archive", "archive", "archived"),
)
_FIELDS = ("text", "header", "since", "until")


class Filter(msgspec.Struct, frozen=True):
    """A state, and what messages of it must have."""

    state: str
    view: View
    count: str  # the field of `stats` that counts messages of this state
    fields: dict[str, str]  # as somebody wrote them; what is empty is not there
    wanted: Wanted

    @property
    def link(self) -> str:
        """Of this view: what stands behind the question mark."""
        return urlencode({"state": self.state, **self.fields})


def read(request: Request[Any, Any, Any], given: Mapping[str, Any]) -> Filter:
    """ConfigError for what says nothing; Refused for those who ask for what they may not see."""
    word = str(given.get("state") or "ready")
    found = next((each for each in VIEWS if each[0] == word), None)
    if found is None:
        raise ConfigError(f"state: one of {', '.join(known for known, _, _ in VIEWS)}, not {word!r}")
    fields = {name: str(given[name]).strip() for name in _FIELDS if str(given.get(name, "")).strip()}
    wanted = Wanted(
        text=fields.get("text", ""),
        headers=_headers(fields.get("header", "")),
        since=instant("since", fields.get("since", "")),
        until=instant("until", fields.get("until", "")),
    )
    if wanted.of_content and not sees_content(request):
        raise Refused(403, "not allowed", f"contents are not shown to the role {holder_of(request).role}")
    return Filter(word, found[1], found[2], fields, wanted)


def _headers(text: str) -> tuple[tuple[str, str], ...]:
    if not text:
        return ()
    name, divider, value = text.partition("=")
    if not divider or not name.strip():
        raise ConfigError(f"header: name=value, not {text!r}")
    return ((name.strip(), value.strip()),)
