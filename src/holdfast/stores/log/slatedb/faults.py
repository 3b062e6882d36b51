"""What SlateDB's errors mean for a caller; the only place that decides it."""

from __future__ import annotations

import re

from ....errors import ConfigError, Damaged, Fenced, StoreError, Unavailable
from ..folder.faults import caused
from .binding import slatedb

FENCED = (
    "another process has opened this SlateDB database and owns it now; one process at a time may, so this one stops. "
    "Connect again only if the other is meant to go"
)


_CODE = re.compile(r"<Code>(\w+)</Code>")
_KEYS = ("AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken")


def translated(error: BaseException, *, opening: str = "") -> BaseException:
    """Our error with the driver's as its cause; any other error as it is."""
    package = slatedb()
    if isinstance(error, TimeoutError):
        return caused(Unavailable(f"{opening or 'SlateDB'} did not answer in time"), error)
    if isinstance(error, OSError):
        return caused(Unavailable(f"the store could not do it, try again later: {error}"), error)
    if not isinstance(error, package.Error):
        return caused(RuntimeError("the step raised StopIteration"), error) if _stops(error) else error
    said = str(getattr(error, "message", error))
    if isinstance(error, package.Error.Closed) and error.reason is package.CloseReason.FENCED:
        return caused(Fenced(FENCED), error)
    # A manifest that cannot be read is an internal error on a disk; on a bucket it is most often the network's.
    unreadable = isinstance(error, package.Error.Internal) and opening.startswith("/")
    if isinstance(error, package.Error.Data) or unreadable:
        return caused(Damaged(f"the SlateDB database is damaged, restore it from a backup: {said}"), error)
    code = _CODE.search(said)
    if code is not None and code[1] == "NoSuchBucket":
        return caused(StoreError(f"{opening or 'the store'}: the bucket does not exist; make it first"), error)
    if code is not None and code[1] in _KEYS:
        return caused(StoreError(f"{opening or 'the store'}: the server refuses these credentials ({code[1]})"), error)
    if opening and isinstance(error, package.Error.Invalid):
        return caused(ConfigError(f"{opening} cannot be used as a store: {said}"), error)
    said = said.partition("<?xml")[0].rstrip(" :")
    return caused(Unavailable(f"the store could not do it, try again later: {said}"), error)


def another(error: BaseException) -> BaseException:
    """The same for somebody else: raised in several places, one exception would grow a traceback of all of them."""
    if not isinstance(error, StoreError | ConfigError):
        return error
    made = type(error)(*error.args)
    return made if error.__cause__ is None else caused(made, error.__cause__)


def _stops(error: BaseException) -> bool:
    return isinstance(error, StopIteration)  # a future cannot carry it
