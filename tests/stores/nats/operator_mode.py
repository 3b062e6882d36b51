"""Operator, account and user JWTs as `nsc` makes them, for one test of a credentials file."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import time
from typing import Any

import nkeys

_NONE = -1
_LIMITS = dict.fromkeys(
    ("subs", "data", "payload", "imports", "exports", "conn", "leaf", "mem_storage", "disk_storage"), _NONE
) | {"streams": _NONE, "consumer": _NONE, "wildcards": True}


def pair(kind: int) -> tuple[bytes, Any, str]:
    """A seed, its key, and its public name."""
    seed = nkeys.encode_seed(os.urandom(32), kind)
    key = nkeys.from_seed(bytearray(seed))
    return bytes(seed), key, key.public_key.decode()


def encode(claims: dict[str, Any], issuer: Any, subject: str) -> str:
    """A signed token."""
    body = {"iat": int(time.time()), "iss": issuer.public_key.decode(), "name": "test", "sub": subject, "nats": claims}
    digest = hashlib.new("sha512_256", json.dumps(body).encode()).digest()
    body["jti"] = base64.b32encode(digest).decode().rstrip("=")
    signed = f"{_part({'typ': 'JWT', 'alg': 'ed25519-nkey'})}.{_part(body)}"
    return f"{signed}.{base64.urlsafe_b64encode(issuer.sign(signed.encode())).decode().rstrip('=')}"


def _part(value: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def operator_mode() -> tuple[str, str]:
    """What the server's configuration needs, and the text of a credentials file."""
    _, operator, operator_name = pair(nkeys.PREFIX_BYTE_OPERATOR)
    _, account, account_name = pair(nkeys.PREFIX_BYTE_ACCOUNT)
    _, _, system_name = pair(nkeys.PREFIX_BYTE_ACCOUNT)
    seed, _, user_name = pair(nkeys.PREFIX_BYTE_USER)
    about_operator = {"type": "operator", "version": 2, "system_account": system_name}
    limits = {"type": "account", "version": 2, "limits": _LIMITS}
    plain = {"type": "account", "version": 2, "limits": {**_LIMITS, "mem_storage": 0, "disk_storage": 0}}
    tokens = {
        account_name: encode(limits, operator, account_name),
        system_name: encode(plain, operator, system_name),
    }
    user = encode({"type": "user", "version": 2, "subs": _NONE, "data": _NONE, "payload": _NONE}, account, user_name)
    preload = ", ".join(f'{name}: "{token}"' for name, token in tokens.items())
    config = (
        f'operator: "{encode(about_operator, operator, operator_name)}"\n'
        f"system_account: {system_name}\nresolver: MEMORY\nresolver_preload: {{{preload}}}"
    )
    creds = (
        f"-----BEGIN NATS USER JWT-----\n{user}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed.decode()}\n------END USER NKEY SEED------\n"
    )
    return config, creds
