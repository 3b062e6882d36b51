"""libpq URIs: our own keys are taken out, keys that only libpq knows are left out."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from ...config import StoreOptions, unknown
from ...errors import ConfigError

_KEYED = re.compile(r"[;&?]\s*\w+=")  # a driver would take it for a part of the database's name, and show it

# What the driver understands in a URI; everything else would become a setting of the session.
_DRIVER = {
    *("host", "port", "user", "password", "dbname", "database", "passfile", "sslmode", "sslrootcert", "sslcert"),
    *("sslkey", "sslcrl", "sslpassword", "ssl_min_protocol_version", "ssl_max_protocol_version", "sslnegotiation"),
    *("target_session_attrs", "krbsrvname", "gsslib", "service", "servicefile", "direct_tls"),
    *("application_name", "options", "client_encoding"),
}
# What libpq knows and the driver does not need: it keeps connections alive in its own way.
_LIBPQ = {
    *("keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout"),
    *("sslcompression", "sslsni", "load_balance_hosts"),
    *("fallback_application_name", "max_protocol_version", "min_protocol_version"),
}
# Protections that the driver does not give: values that ask for none, if any.
_NOT_HONOURED = {
    "channel_binding": ("disable", "prefer"),
    "gssencmode": ("disable", "prefer"),
    "require_auth": ("",),
    "requirepeer": ("",),
    "requiressl": ("0",),
    "hostaddr": (),
}


def take_apart(url: str, shown: str) -> tuple[str, list[tuple[str, str]]]:
    """The URI for the driver, and what of its query is ours; ConfigError for keys nobody knows."""
    parts = urlsplit(url)
    _check_hosts(parts.netloc.rpartition("@")[2], shown)
    if "@" in parts.netloc.rpartition("@")[0]:
        raise ConfigError(f"{shown}: '@' in a user name or password must be written %40")
    if _KEYED.search(unquote(parts.path)):
        raise ConfigError(f"{shown}: keys stand behind '?'")
    ours, theirs = [], []
    for key, value in parse_qsl(parts.query, keep_blank_values=True):
        if key in StoreOptions.__struct_fields__:
            ours.append((key, value))
        elif key in _DRIVER:
            theirs.append((key, value))
            if key == "host":
                _check_hosts(value, shown)
        elif key in _NOT_HONOURED:
            _refuse_unless_idle(key, value, shown)
        elif key not in _LIBPQ:
            known = (*StoreOptions.__struct_fields__, *_DRIVER, *_LIBPQ, *_NOT_HONOURED)
            raise ConfigError(unknown(f"{shown}: unknown key", key, known))
    return urlunsplit(("postgresql", parts.netloc, parts.path, urlencode(theirs), "")), ours


def _check_hosts(names: str, shown: str) -> None:
    """What the driver would word with a part of the password."""
    if "@" in names:
        raise ConfigError(f"{shown}: a user name and a password stand before the host, as in postgresql://user@host")
    for name in names.split(","):
        _, colon, port = name.rpartition("]")[2].partition(":")
        if colon and port and not name.startswith("/") and not port.isdecimal():
            raise ConfigError(f"{shown}: a port is a number")


def _refuse_unless_idle(key: str, value: str, shown: str) -> None:
    """A protection that the URL asks for must be there, or the connection is refused."""
    if value not in _NOT_HONOURED[key]:
        use = "put the address into host" if key == "hostaddr" else "use sslmode=verify-full and sslrootcert"
        raise ConfigError(f"{shown}: the PostgreSQL driver does not honour {key}; leave it out ({use})")


def hosts(uri: str) -> list[str]:
    """The same URI once for each of its hosts."""
    parts = urlsplit(uri)
    user, at, names = parts.netloc.rpartition("@")
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    if "," in names:
        return [urlunsplit(parts._replace(netloc=f"{user}{at}{name}")) for name in names.split(",")]
    if "," not in query.get("host", ""):
        return [uri]
    given = query["host"].split(",")
    ports = query.get("port", "").split(",")
    if len(ports) != len(given):  # one for all, or a mistake that the driver words well
        ports = [query.get("port", "")] * len(given)
    made = []
    for name, port in zip(given, ports, strict=True):
        own = query | {"host": name} | ({"port": port} if port else {})
        made.append(urlunsplit(parts._replace(query=urlencode(own))))
    return made


def named(uri: str) -> str:
    """Host and port of a URI with one host, as errors name it: nothing else of it."""
    parts = urlsplit(uri)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    place = parts.netloc.rpartition("@")[2] or query.get("host", "")
    if not place:
        return "the usual socket"
    port = query.get("port", "5432")
    has_port = place.startswith("/") or ":" in place.rpartition("]")[2]
    return place if has_port else f"{place}:{port}"
