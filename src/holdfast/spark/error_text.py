"""The edge of the data source: an error of ours leaves it as its sentence, without the way it came.

Spark's Python processes send an exception to the JVM as text, and the text of ours would be a page of frames of Spark
and of us before the sentence that says what to do. Anything else is a defect, and keeps its frames.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar, cast

from ..errors import HoldfastError

P = ParamSpec("P")
R = TypeVar("R")

IN_WORKER = "PYTHON_WORKER_FACTORY_"  # so begin variables that Spark sets for the processes it starts, and only there
HIDE = "SPARK_HIDE_TRACEBACK"  # read by Spark when it writes an exception down; the process ends after that


def plain(function: Callable[P, R]) -> Callable[P, R]:
    """For what Spark calls: functions, and generators as well."""
    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def each(*args: P.args, **kwargs: P.kwargs) -> Iterator[object]:
            with _sentence():
                yield from cast("Iterator[object]", function(*args, **kwargs))

        return cast("Callable[P, R]", each)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with _sentence():
            return function(*args, **kwargs)

    return call


@contextmanager
def _sentence() -> Iterator[None]:
    try:
        yield
    except HoldfastError:
        if in_worker():
            os.environ[HIDE] = "1"
        raise


def in_worker() -> bool:
    """Whether Spark has started this process."""
    return any(name.startswith(IN_WORKER) for name in os.environ)
