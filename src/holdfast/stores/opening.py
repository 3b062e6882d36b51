"""From a URL to an open store. Engines are imported when their URL is; credentials are never shown."""

from __future__ import annotations

import os
import re
from asyncio import get_running_loop, timeout
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from string import ascii_letters, digits
from typing import Any, Literal, TypeVar
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import msgspec

from .. import config
from ..config import StoreOptions
from ..errors import ConfigError, Unavailable
from .base import NO_ROLES, Store
from .batches import Sink, batches_of

T = TypeVar("T")
WINDING_UP_S = 0.8  # beyond a timeout for a store to tell the cause itself, and give back what it has

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_LIKE_A_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_PATH = re.compile(r"[/.~].*|[\w./-]+", re.DOTALL)  # a path with odd characters says that it is one

_LONE = re.compile("[\ud800-\udfff]")  # halves of characters, which no file or server can be named with
_CONTROL = re.compile("[\x00-\x1f\x7f]")  # drivers end in a panic, or show what stands around it
_USERINFO = re.compile(r"://[^\n]*@")
_WORD = re.compile(r"[^\W_]+")
_NEXT = str.maketrans(ascii_letters + digits, ascii_letters[1:] + digits + ascii_letters[0])  # no letter is its own
_SECRET = re.compile(
    r"([\w.-]*(?:secret|passw|pwd|token|key|credential|signature|sas|sig)[\w.-]*)=([^&\s'\"]+)", re.IGNORECASE
)


class Scheme(msgspec.Struct, frozen=True, kw_only=True):
    """All that depends on the first word of a URL."""

    opens: str  # module and function below `stores`: (place, options) -> Store
    takes_apart: str | None = None  # the same: (URL, as it is shown) -> place, our keys; None: it names a folder
    extra: str | None = None  # of the package, with the driver; None: always installed
    owner: Literal["any", "one", "process"] = "any"  # any number of processes, one at a time, or only inside its own
    serves_spark: bool = False
    sink: str | None = None  # where Spark can only write: module and function below `stores`: (Store) -> Sink
    credentials: str = "HOLDFAST_URL"  # the variables that hold them
    survives: tuple[str, str, str] = ("yes", "yes", "yes, as the provider promises")  # a process, the system, a disk


_BUCKET = Scheme(opens="log:open_cloud", takes_apart="log.bucket:take_apart", extra="s3", serves_spark=True)
_S3, _GS, _AZ = (
    msgspec.structs.replace(_BUCKET, credentials=variables)
    for variables in (
        "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
    )
)
_SLATE = Scheme(opens="log:open_slate", takes_apart="log.slatedb:take_apart", extra="slatedb", owner="one")
_POSTGRES = Scheme(
    opens="postgres:open_postgres",
    takes_apart="postgres:take_apart",
    extra="postgres",
    serves_spark=True,
    credentials="PGPASSWORD (or PGPASSFILE)",
    survives=("yes", "yes, while fsync is on", "with a replica or a backup"),
)
_HTTP = Scheme(
    opens="http:open_http",
    takes_apart="http:take_apart",
    extra="server",
    survives=("yes, also a kill of the server", "as the served store", "as the served store"),
)
_NATS = Scheme(
    opens="nats:open_nats",
    sink="nats.sink:NatsSink",
    takes_apart="nats:take_apart",
    extra="nats",
    survives=("yes", "only with sync_interval: always, or with replicas", "with replicas"),
)
SCHEMES = {
    "memory": Scheme(
        opens="log:open_memory",
        owner="process",
        survives=("no: it lives and dies with its process", "no", "no"),
    ),
    "file": Scheme(
        opens="log:open_folder",
        serves_spark=True,
        survives=("yes", "yes, what is acknowledged is synced", "no: one copy, back the folder up"),
    ),
    "postgresql": _POSTGRES,
    "postgres": _POSTGRES,
    "nats": _NATS,
    "tls": _NATS,
    "s3": _S3,
    "gs": _GS,
    "az": _AZ,
    "slatedb+file": msgspec.structs.replace(
        _SLATE, takes_apart=None, survives=("yes", "yes, what SlateDB writes is synced", "no: one copy")
    ),
    "slatedb+s3": _SLATE,
    "slatedb+gs": _SLATE,
    "slatedb+az": _SLATE,
    "http": _HTTP,
    "https": _HTTP,
}


class Location(msgspec.Struct, frozen=True):
    """A URL taken apart: what the store needs, and the options it carried."""

    scheme: str
    place: str
    options: dict[str, Any]

    @property
    def kind(self) -> Scheme:
        return SCHEMES[self.scheme]

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
        if isinstance(url, str) and _tells(str(error), url):
            raise ConfigError(
                "this URL cannot be read, and is not shown since it holds credentials: "
                "in a user name or password write %25 %2F %3F %23 %40 %3A %26 for % / ? # @ : &"
            ) from None
        raise


def _tells(text: str, url: str) -> bool:
    """Whether an error about a URL may show a part of its credentials, also where they are not encoded."""
    scheme, _, rest = url.partition("://")
    keyed, at = _SECRET.search(rest), max(rest.rfind("@"), 0)
    begins = max(keyed.start(2), at) if keyed else len(rest)
    risky = f"{rest[:at]} {rest[begins:]}"
    if not {*_WORD.findall(risky), *_WORD.findall(unquote(risky))} & set(_WORD.findall(text)):
        return False
    if "%" in risky or not risky.isascii():
        return True
    other = f"{scheme}://{rest[:at].translate(_NEXT)}{rest[at:begins]}{rest[begins:].translate(_NEXT)}"
    try:
        _located(other)
    except ConfigError as error:
        return str(error) != text  # else it says the same whatever they are
    return True


def _located(url: str | os.PathLike[str]) -> Location:
    if isinstance(url, os.PathLike):
        return Location("file", os.fspath(url), {})
    if not isinstance(url, str) or not url.strip() or "\0" in url or _LONE.search(url):
        raise ConfigError("a store's URL is text such as file:///var/lib/jobs or memory://")
    match = _SCHEME.match(url)
    if match is None:
        return Location("file", _path(url), {})
    scheme = match[1].lower()
    if scheme not in SCHEMES:
        raise ConfigError(config.unknown(f"{_shown(url)}: unknown scheme", scheme, SCHEMES))
    return _take_apart(scheme, url)


async def open_store(location: Location, options: StoreOptions, *, pool: Any = None) -> Store:
    """Open the store; Unavailable when that takes longer than `connect_timeout`. `pool`: of asyncpg, on PostgreSQL.

    Stores keep that time themselves, since they know the cause; the deadline here is for one that hangs.
    """
    loop, seconds = get_running_loop(), options.connect_timeout + WINDING_UP_S
    try:
        async with timeout(None) as limit:
            # From the first wait on: before it the engine and its driver are loaded, seconds on a busy machine.
            begins = loop.call_soon(lambda: limit.reschedule(loop.time() + seconds))
            try:
                return await _open(location, options, pool)
            finally:
                begins.cancel()
    except TimeoutError as error:
        raise Unavailable(f"{location.scheme}:// did not open within {options.connect_timeout:g} s") from error


async def in_time(work: Awaitable[T], seconds: float, place: str) -> T:
    """What takes several calls to the store has the time of one; Unavailable."""
    try:
        async with timeout(seconds + WINDING_UP_S):
            return await work
    except TimeoutError:
        raise Unavailable(f"{place} did not answer within {seconds:g} s") from None


async def _open(location: Location, options: StoreOptions, pool: Any) -> Store:
    if pool is not None and location.kind is not _POSTGRES:
        raise ConfigError(f"pool= is a pool of asyncpg, for PostgreSQL; {location.scheme}:// has none")
    given = {} if pool is None else {"pool": pool}
    with _installed(location):
        store: Store = await _found(location.kind.opens)(location.place, options, **given)
    return store


def sink_of(store: Store, kind: Scheme) -> Sink:
    """Where Spark writes; ConfigError where it cannot."""
    if kind.sink is None:
        return batches_of(store)
    made: Sink = _found(kind.sink)(store)
    return made


def _found(name: str) -> Callable[..., Any]:
    """A function of an engine, which is imported when its URL is used."""
    module, _, function = name.partition(":")
    found: Callable[..., Any] = getattr(import_module(f"{__package__}.{module}"), function)
    return found


@contextmanager
def _installed(location: Location) -> Iterator[None]:
    """An extra that is not installed is a ConfigError that says how."""
    try:
        yield
    except ImportError as error:
        if (extra := location.kind.extra) is None:
            raise
        raise ConfigError(f"{location.scheme}:// needs an extra: pip install 'holdfast[{extra}]'") from error


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


def must_be_there(location: Location) -> None:
    """A mistyped path must not make a new store; ConfigError. What is left of a store is for its opening to judge."""
    from .log.folder import has_remains

    if unmade(location) and not (location.scheme == "file" and has_remains(Path(location.place).absolute())):
        raise ConfigError(f"there is no store at {redact(location.place)}")


def grants(location: Location, options: StoreOptions, role: str) -> str:
    """SQL that gives a role what producers and workers need, without any I/O; ConfigError where there are no roles."""
    if location.kind is not _POSTGRES:
        raise ConfigError(NO_ROLES)
    with _installed(location):
        from . import postgres

        return postgres.grants(role, options)


def install_sql(location: Location, options: StoreOptions) -> str:
    """SQL that does what `install` does in an empty database, without any I/O; ConfigError where there is no SQL."""
    if location.kind is not _POSTGRES:
        raise ConfigError("--sql is for PostgreSQL; other stores are made by `holdfast install` alone")
    with _installed(location):
        from . import postgres

        return postgres.install_sql(options)


def _path(text: str) -> str:
    if _LIKE_A_URL.match(text) or not _PATH.fullmatch(text) or (text.startswith("//") and "@" in text):
        shown = "this" if "@" in text or "=" in text else repr(text)
        raise ConfigError(f"{shown} is neither a URL nor a path; write file:///var/lib/jobs, memory://, or ./folder")
    return os.path.expanduser(text)


def _shown(url: str) -> str:
    """A URL in an error about it: without its query, since a mistyped key may carry a secret too."""
    before, at, after = url.split("?")[0].rpartition("@")
    return f"{before[: before.index('://')]}://***@{after}" if at else after


def _split(scheme: str, url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
    except ValueError:  # also of a character that only looks like '@', behind which a password may stand
        raise ConfigError(f"{_shown(url) if url.isascii() else f'{scheme}://***'}: not a URL") from None
    values = (value for key, value in parse_qsl(parts.query) if key != "service_account_key")  # which is JSON
    if _CONTROL.search(url) or any(map(_CONTROL.search, (unquote(parts.netloc), *values))):
        raise ConfigError(f"{scheme}://***: a newline or another control character is no part of a name or password")
    if parts.fragment:
        raise ConfigError(f"{_shown(url)}: '#' must be written %23")
    if SCHEMES[scheme] in (_POSTGRES, _NATS) and "@" in parts.path:
        raise ConfigError(f"{scheme}://***: '/' in a password must be written %2F, '@' in a database's name %40")
    return parts


def _take_apart(scheme: str, url: str) -> Location:
    parts, take_apart = _split(scheme, url), SCHEMES[scheme].takes_apart
    if take_apart is not None:
        place, ours = _found(take_apart)(url, _shown(url))
        return Location(scheme, place, _carried(ours, _shown(url)))
    carried = _carried(parse_qsl(parts.query, keep_blank_values=True), _shown(url))
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
