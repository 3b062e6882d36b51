"""http:// and https://: a store that another process has opened, by `holdfast serve`."""

from __future__ import annotations

from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from ...config import StoreOptions
from ...errors import ConfigError
from ..base import Store


def take_apart(url: str, shown: str) -> tuple[str, list[tuple[str, str]]]:
    """The URL as the client needs it, and our own keys of its query. The token is the user's name or password."""
    parts = urlsplit(url)
    try:
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host:
        raise ConfigError(f"{shown}: which host?")
    query = parse_qsl(parts.query, keep_blank_values=True)
    given = parts.password or parts.username or dict(query).get("token")
    token = urlencode({"token": unquote(given)}) if given else ""
    place = parts._replace(netloc=parts.netloc.rpartition("@")[2], path=parts.path.rstrip("/"), query=token)
    return place.geturl(), [(key, value) for key, value in query if key != "token"]


async def open_http(place: str, options: StoreOptions) -> Store:
    """Open it; Unavailable, or StoreError where the server refuses."""
    from .store import HttpStore

    store = HttpStore(place, options)
    try:
        await store.open()
    except BaseException:
        await store.close()
        raise
    return store
