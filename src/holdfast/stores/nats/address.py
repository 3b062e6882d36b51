"""From a URL to what the driver needs to connect: servers, credentials, TLS. Nothing of it is ever shown."""

from __future__ import annotations

import ssl
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

import msgspec

from ...config import unknown
from ...errors import ConfigError

KEYS = ("creds", "nkey", "ca", "cert", "key")  # paths of files, in the URL's query
_NATS_PORT = 4222  # where NATS listens, when a URL names no port


class Address(msgspec.Struct, frozen=True):
    """Where the servers are and how to show who we are."""

    servers: tuple[str, ...]
    secure: bool = False
    user: str | None = None
    password: str | None = None
    token: str | None = None
    creds: str | None = None
    nkey: str | None = None
    ca: str | None = None
    cert: str | None = None
    key: str | None = None

    def __repr__(self) -> str:
        return f"Address({', '.join(self.servers)})"

    def connect_options(self) -> dict[str, Any]:
        """For `nats.connect`; ConfigError for a file that cannot be read."""
        given: dict[str, Any] = {"servers": list(self.servers)}
        for name in ("user", "password", "token"):
            if getattr(self, name) is not None:
                given[name] = getattr(self, name)
        if self.creds is not None:
            given["user_credentials"] = _readable("creds", self.creds)
        if self.nkey is not None:
            given["nkeys_seed"] = _readable("nkey", self.nkey)
        if self.secure or self.ca or self.cert:
            given["tls"] = self._context()
        return given

    def _context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.ca)
            if self.cert is not None:
                context.load_cert_chain(self.cert, self.key)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"nats: the files of ca, cert and key cannot be used: {type(error).__name__}") from error
        return context


def split(url: str) -> tuple[str, list[tuple[str, str]]]:
    """The URL with its own query keys, checked, and the rest of the query."""
    parts = urlsplit(url)
    query = parse_qsl(parts.query, keep_blank_values=True)
    theirs = [(key, value) for key, value in query if key in KEYS]
    place = urlunsplit((parts.scheme.lower(), parts.netloc, parts.path, urlencode(theirs), ""))
    parse(place)
    return place, [(key, value) for key, value in query if key not in KEYS]


def parse(url: str) -> Address:
    """`nats://[user:password@|token@]host[:port][,host…][?creds=…]` or `tls://…`; ConfigError without the URL in it."""
    parts = urlsplit(url)
    userinfo, _, hosts = parts.netloc.rpartition("@")
    if parts.path not in ("", "/") or not hosts:
        raise ConfigError("nats: write nats://host:4222, or several hosts divided by commas")
    servers = tuple(_server(host) for host in hosts.split(","))
    user, colon, password = userinfo.partition(":")
    who: dict[str, str] = {}
    if colon:
        who = {"user": unquote(user), "password": unquote(password)}
    elif user:
        who = {"token": unquote(user)}
    return Address(servers, parts.scheme == "tls", **who, **_files(parts.query))


def _server(host: str) -> str:
    try:
        parts = urlsplit(f"nats://{host}")
        port = parts.port or _NATS_PORT
    except ValueError:
        raise ConfigError("nats: a port is a number") from None
    if not parts.hostname or "@" in host:
        raise ConfigError("nats: a host is missing, or '@' in a password is not written %40")
    name = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"nats://{name}:{port}"


def _files(query: str) -> dict[str, str]:
    files = dict(parse_qsl(query, keep_blank_values=True))
    for key in files:
        if key not in KEYS:
            raise ConfigError(unknown("nats: unknown key", key, KEYS))
    return files


def _readable(what: str, path: str) -> str:
    """The path; the system's own error would show it, and people write seeds in its place."""
    try:
        with open(path, "rb"):
            return path
    except OSError as error:
        raise ConfigError(f"nats: the file of {what} cannot be read: {type(error).__name__}") from None
