"""What happens to an exception? A pure decision: try again in so many seconds, or dead."""

from __future__ import annotations

from types import TracebackType
from typing import Literal

import msgspec

from .escaping import logger_named
from .limits import kept_text
from .retry import Exponential, RetryFunction, RetryPolicy
from .validate import seconds

_KEPT_FRAMES = 4  # of the user's code: where it broke and who called it
_DEFAULT_POLICY = Exponential()
_LOG = logger_named("holdfast.outcome")


class Retry(Exception):
    """Raised by a handler: try again in `delay` seconds; None: when the queue's policy says."""

    def __init__(self, delay: float | None = None) -> None:
        if delay is not None:
            delay = seconds("Retry(delay)", delay)
        super().__init__("asked to run again" if delay is None else f"asked to run again in {delay:g} s")
        self.delay = delay


class Dead(Exception):
    """Raised by a handler: no further try, straight to the dead letters, for this reason: a text or an exception."""

    def __init__(self, reason: str | BaseException = "dead") -> None:
        super().__init__(reason)
        self.reason = reason


class Decision(msgspec.Struct, frozen=True):
    """What becomes of a failed attempt; `delay` counts for a retry."""

    action: Literal["retry", "dead"]
    delay: float
    error: str


def decide(
    error: BaseException | str,
    *,
    attempt: int,
    max_attempts: int,
    policy: RetryPolicy | RetryFunction,
    retry_in: float | None = None,
    fallback: RetryPolicy = _DEFAULT_POLICY,
) -> Decision:
    """Retry or dead. `retry_in` and `Retry(delay)` win over the policy; nothing wins over `max_attempts` and `Dead`."""
    text = describe(error)
    if isinstance(error, Dead) or attempt >= max_attempts:
        return Decision("dead", 0.0, text)
    delay = _asked(error, retry_in)
    if delay is None:
        delay = _by_policy(error, attempt, policy, fallback)
    if delay is None:
        return Decision("dead", 0.0, text)
    return Decision("retry", delay, text)


def describe(error: BaseException | str) -> str:
    """`Type: message` and the last frames, at most 8 KiB of UTF-8, cut with a mark; a string stays as it is."""
    if isinstance(error, str):
        return kept_text(error)
    if isinstance(error, Dead):
        return _reason(error.reason)
    if isinstance(error, Retry) and error.__cause__ is not None:
        error = error.__cause__
    return kept_text("\n".join([_headline(error), *_frames(error.__traceback__)]))


def _asked(error: BaseException | str, retry_in: float | None) -> float | None:
    """The delay somebody asked for, or None."""
    if retry_in is None and isinstance(error, Retry):
        return error.delay
    return retry_in


def _by_policy(
    error: BaseException | str, attempt: int, policy: RetryPolicy | RetryFunction, fallback: RetryPolicy
) -> float | None:
    """The policy's answer; a function that fails or answers nonsense does not decide."""
    if isinstance(policy, RetryPolicy):
        return policy.after(attempt)
    try:
        answer = policy(attempt, RuntimeError(error) if isinstance(error, str) else error)
        if answer is None:
            return None
        delay = seconds("the answer of a retry function", float(answer))
    except Exception:  # noqa: BLE001 - the user's function: its failure must not cost the message its retry
        _LOG.exception("the retry function failed; the stored policy decides")
        return fallback.after(attempt)
    return delay


def _reason(reason: object) -> str:
    """Why it is dead. A user's slip must not keep a message from dying, so whatever was given is taken."""
    return describe(reason) if isinstance(reason, BaseException | str) else kept_text(_text(reason))


def _text(said: object) -> str:
    try:
        return str(said)
    except Exception as broken:  # noqa: BLE001 - a user's __str__
        return f"<str() failed: {type(broken).__name__}>"


def _headline(error: BaseException) -> str:
    message = _text(error)
    name = type(error).__qualname__
    return f"{name}: {message}" if message else name


def _frames(traceback: TracebackType | None) -> list[str]:
    """The innermost frames of the user's code, innermost last."""
    lines = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if not str(traceback.tb_frame.f_globals.get("__name__")).startswith("holdfast."):
            lines.append(f'  File "{code.co_filename}", line {traceback.tb_lineno}, in {code.co_qualname}')
        traceback = traceback.tb_next
    return lines[-_KEPT_FRAMES:]
