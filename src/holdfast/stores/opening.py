"""From a URL to an open store. Engines are imported when their URL is; credentials are never shown."""

from __future__ import annotations

import os
import re
from asyncio import timeout
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import msgspec

from .. import config
from ..config import StoreOptions
from ..errors import ConfigError, Unavailable
from .base import NO_ROLES, Store

if TYPE_CHECKING:
    from .log import slatedb

# What the contract names and this version does not have. A store that arrives leaves this list.
LATER = (*("http", "https"),)
_SLATE = ("slatedb+file", "slatedb+s3", "slatedb+gs", "slatedb+az")
_CLOUD = ("s3", "gs", "az")
_NOW = ("memory", "file", "postgresql", "postgres", "nats", "tls", *_CLOUD, *_SLATE)
OWNED_BY_ONE = frozenset(("memory", *_SLATE))  # one process at a time
_POSTGRES = ("postgresql", "postgres")
_NATS = ("nats", "tls")
_WINDING_UP_S = 0.8  # seconds beyond `connect_timeout` for a store to tell the cause and give back what it has

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_LIKE_A_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_PATH = re.compile(r"[/.~].*|[\w./-]+", re.DOTALL)  # a path with odd characters says that it is one

_LONE = re.compile("[\ud800-\udfff]")  # halves of characters, which no file or server can be named with
_USERINFO = re.compile(r"://[^\n]*@")
_WORD = re.compile(r"[^\W_]+")
_SECRET = re.compile(
    r"([\w.-]*(?:secret|passw|pwd|token|key|credential|signature|sas|sig)[\w.-]*)=([^&\s'\"]+)", re.IGNORECASE
)


class Location(msgspec.Struct, frozen=True):
    """A URL taken apart: what the store needs, and the options it carried."""

    scheme: str
    place: str
    options: dict[str, Any]

    def __repr__(self) -> str:  # the place may carry a password
        return f"Location({self.scheme!r})"


def redact(text: str) -> str:
    """The text without the credentials of the URLs in it."""
    return _SECRET.sub(r"\1=***", _USERINFO.sub("://***@", text))


def locate(url: str | os.PathLike[str]) -> Location:
    """Take a URL or a path apart, without any I/O; ConfigError."""
    try:
        return _located(url)
    except ConfigError as error:
        if isinstance(url, str) and _secrets(url) & set(_WORD.findall(str(error))):
            raise ConfigError(
                "this URL cannot be read, and is not shown since it holds credentials: "
                "in a user name or password write %25 %2F %3F %23 %40 %3A %26 for % / ? # @ : &"
            ) from None
        raise


def _secrets(url: str) -> set[str]:
    """The words of all that may be a credential, also where its special characters are not encoded."""
    _, _, rest = url.partition("://")
    keyed = _SECRET.search(rest)
    risky = rest.rpartition("@")[0] + " " + (rest[keyed.start(2) :] if keyed else "")
    return set(_WORD.findall(risky)) | set(_WORD.findall(unquote(risky)))


def _located(url: str | os.PathLike[str]) -> Location:
    if isinstance(url, os.PathLike):
        return Location("file", os.fspath(url), {})
    if not isinstance(url, str) or not url.strip() or "\0" in url or _LONE.search(url):
        raise ConfigError("a store's URL is text such as file:///var/lib/jobs or memory://")
    match = _SCHEME.match(url)
    if match is None:
        return Location("file", _path(url), {})
    scheme = match[1].lower()
    if scheme in LATER:
        have = "file://, memory://, s3://, postgresql://, nats:// and slatedb+file://"
        raise ConfigError(f"{scheme}:// stores are not part of this version of Holdfast yet; it has {have}")
    if scheme not in _NOW:
        raise ConfigError(config.unknown(f"{_shown(url)}: unknown scheme", scheme, (*_NOW, *LATER)))
    return _take_apart(scheme, url)


async def open_store(location: Location, options: StoreOptions) -> Store:
    """Open the store; Unavailable when that takes longer than `connect_timeout`.

    Stores keep that time themselves, since they know the cause; the deadline here is for one that hangs.
    """
    try:
        async with timeout(options.connect_timeout + _WINDING_UP_S):
            return await _open(location, options)
    except TimeoutError as error:
        raise Unavailable(f"{location.scheme}:// did not open within {options.connect_timeout:g} s") from error


async def _open(location: Location, options: StoreOptions) -> Store:
    if location.scheme in _POSTGRES:
        from . import postgres

        return await postgres.open_postgres(location.place, options)
    if location.scheme in _NATS:
        from . import nats

        return await nats.open_nats(location.place, options)
    from . import log

    if location.scheme in _CLOUD:
        return await log.open_cloud(location.place, options)
    if location.scheme == "memory":
        return await log.open_memory(location.place, options)
    if location.scheme in _SLATE:
        return await log.open_slate(_slate_place(location, options), options)
    return await log.open_folder(Path(location.place), options)


def unmade(location: Location) -> list[str]:
    """What opening the location would have to make, in words, without making it; [] when it is there or not ours."""
    if location.scheme == "slatedb+file":
        from .log import slatedb

        return slatedb.unmade(slatedb.local(location.place))
    if location.scheme != "file":
        return []
    from .log.folder import database_of

    folder = Path(location.place).absolute()
    made = [] if folder.exists() else [f"create the folder {folder}"]
    database = database_of(folder)
    return made if database.exists() else [*made, f"create the database {database}"]


def grants(location: Location, options: StoreOptions, role: str) -> str:
    """SQL that gives a role what producers and workers need, without any I/O; ConfigError where there are no roles."""
    if location.scheme not in _POSTGRES:
        raise ConfigError(NO_ROLES)
    from . import postgres

    return postgres.grants(role, options)


def _slate_place(location: Location, options: StoreOptions) -> slatedb.Place:
    from .log import slatedb

    if location.scheme == "slatedb+file":
        return slatedb.local(location.place)
    return slatedb.in_bucket(location.place, options)


def _path(text: str) -> str:
    if _LIKE_A_URL.match(text) or not _PATH.fullmatch(text):
        shown = "this" if "@" in text else repr(text)
        raise ConfigError(f"{shown} is neither a URL nor a path; write file:///var/lib/jobs, memory://, or ./folder")
    return os.path.expanduser(text)


def _shown(url: str) -> str:
    """A URL in an error about it: without its query, since a mistyped key may carry a secret too."""
    before, at, after = url.split("?")[0].rpartition("@")
    return f"{before[: before.index('://')]}://***@{after}" if at else after


def _split(scheme: str, url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ConfigError(f"{_shown(url)}: not a URL") from None
    if parts.fragment:
        raise ConfigError(f"{_shown(url)}: '#' must be written %23")
    if scheme in (*_POSTGRES, *_NATS) and "@" in parts.path:  # of a password with '/' in it, or of a database's name
        raise ConfigError(f"{scheme}://***: '/' in a password must be written %2F, '@' in a database's name %40")
    return parts


def _take_apart(scheme: str, url: str) -> Location:
    parts = _split(scheme, url)
    query = parse_qsl(parts.query, keep_blank_values=True)
    if scheme in _POSTGRES:
        from .postgres import take_apart

        place, ours = take_apart(url, _shown(url))
        return Location(scheme, place, _carried(ours, _shown(url)))
    if scheme in _NATS:
        from . import nats

        place, ours = nats.take_apart(url)
        return Location(scheme, place, _carried(ours, _shown(url)))
    if scheme in _SLATE and scheme != "slatedb+file":
        from .log import slatedb

        place, ours = slatedb.take_apart(url, _shown(url))
        return Location(scheme, place, _carried(ours, _shown(url)))
    if scheme in _CLOUD:
        from .log import bucket

        place, ours = bucket.take_apart(url, _shown(url))
        return Location(scheme, place, _carried(ours, _shown(url)))
    carried = _carried(query, _shown(url))
    if scheme == "memory":
        name = unquote(parts.netloc + parts.path)
        return Location(scheme, config.queue_name(name, what="bad name of a memory store") if name else "", carried)
    if parts.netloc not in ("", "localhost"):
        raise ConfigError(f"{_shown(url)}: a path begins with a third slash, as in {scheme}:///var/lib/jobs")
    if parts.path in ("", "/") or "\0" in unquote(parts.path):
        raise ConfigError(f"{_shown(url)}: which folder?")
    return Location(scheme, unquote(parts.path), carried)


def _carried(query: list[tuple[str, str]], shown: str) -> dict[str, Any]:
    """Our own options in the query."""
    values = {}
    for key, text in query:
        if key not in StoreOptions.__struct_fields__:
            raise ConfigError(config.unknown(f"{shown}: unknown key", key, StoreOptions.__struct_fields__))
        values[key] = config.from_text(StoreOptions, key, text, where=f"{shown}: {key}")
    return values


def store_options(settings: Mapping[str, Any], carried: Mapping[str, Any], given: Mapping[str, Any]) -> StoreOptions:
    """Store options: environment and file, then the URL, then the code."""
    config.options(StoreOptions, given, where="connect")
    return config.options(StoreOptions, settings, carried, given, where="store options")
