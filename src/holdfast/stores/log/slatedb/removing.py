"""Removing a database: every object that SlateDB or we have made below its path, and nothing else.

SlateDB's own way removes whatever lies there, and on a bucket that is all below the URL's prefix.
"""

from __future__ import annotations

import contextlib
import os
import re

from ....config import StoreOptions
from ..names import told
from .disk import ASIDE, COMPACTIONS, LOG, MANIFESTS, NOTE, TABLES
from .location import NAME, Place

_KINDS = "|".join((LOG, TABLES, MANIFESTS, COMPACTIONS))
_FILE = r"[0-9A-Z]{20,26}\.(sst|manifest|compactions)"  # a number, or a ULID
_OURS = re.compile(
    rf"({_KINDS})/{_FILE}|({_KINDS}|gc)/([a-z_]+\.)?boundary|{NOTE}(-\d+-[0-9a-f]+)?|{ASIDE}/[^/]+-({_KINDS})/{_FILE}"
)


def remove(place: Place, options: StoreOptions) -> list[str]:
    """After the database was closed; what was left, in words."""
    return _from_folder(place) if place.is_local else _from_bucket(place, options)


def _from_folder(place: Place) -> list[str]:
    base = place.folder / place.path
    for below, folders, files in os.walk(base, topdown=False):
        for name in files:
            if _OURS.fullmatch(os.path.relpath(os.path.join(below, name), base)):
                os.unlink(os.path.join(below, name))
        for name in folders:
            _remove_if_empty(os.path.join(below, name))
    for folder in (base, place.folder):
        _remove_if_empty(folder)
    return told((os.path.join(at, name) for at, _, files in os.walk(place.folder) for name in sorted(files)), "file")


def _remove_if_empty(folder: str | os.PathLike[str]) -> None:
    with contextlib.suppress(OSError):  # not there, or something else is in it
        os.rmdir(folder)


def _from_bucket(place: Place, options: StoreOptions) -> list[str]:
    from ..bucket.address import bucket, has_prefix  # it needs a package that a folder does not
    from ..bucket.requests import Wire
    from ..bucket.usage import Tally

    wire = Wire(bucket(place.url, options), place.text, Tally(), timeout=options.operation_timeout)
    base = "" if has_prefix(place.url) else NAME
    skip = len(base) + 1 if base else 0
    left = wire.remove(base, lambda key: _OURS.fullmatch(key[skip:]) is not None, wire.until())
    return told(left, "object")
