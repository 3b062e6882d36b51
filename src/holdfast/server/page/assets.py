"""The files that pages link to, from the package itself."""

from __future__ import annotations

import functools
import gzip
import hashlib
from importlib.resources import files

KINDS = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
NAMES = ("style.css", "ui.js", "sprite.svg", "mark.svg")


@functools.cache
def read(name: str) -> bytes:
    return files("holdfast.server.page").joinpath("static", name).read_bytes()


@functools.cache
def packed(name: str) -> bytes:
    return gzip.compress(read(name), mtime=0)


@functools.cache
def version() -> str:
    """Of all files together; part of their links, so that browsers may keep them."""
    return hashlib.blake2b(b"".join(read(name) for name in NAMES), digest_size=6).hexdigest()
