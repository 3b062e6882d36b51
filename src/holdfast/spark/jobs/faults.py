"""What goes wrong inside Spark, as an error of ours: the sentence that matters, out of pages of Java."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from ... import errors
from ...errors import CodecError, ConfigError, HoldfastError, StoreError

_OURS = re.compile(r"^(?:\w+\.)*holdfast\.(?:[\w.]+\.)?(\w+): (.+)$", re.M)
_STATE = re.compile(r"\s*SQLSTATE: \w+.*", re.S)
_PLAIN = (CodecError, ConfigError, StoreError)


@contextmanager
def in_plain_words() -> Iterator[None]:
    """Errors of ours that were raised on executors, and Spark's own about a table or a query, as ours."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        found = of_spark(error)
        if found is None:
            raise
        raise found from error


def of_spark(error: BaseException) -> HoldfastError | None:
    """The error of ours it stands for; None when it is not for us to say."""
    from pyspark.errors import AnalysisException

    text = str(error)
    if said := _OURS.findall(text):
        name, sentence = said[-1]
        kind = getattr(errors, name, None)
        if kind in _PLAIN:
            return kind(sentence)  # type: ignore[no-any-return]  # one of them
        return StoreError(sentence)  # others want more than a sentence to be made of
    if isinstance(error, AnalysisException):  # a missing file, a wrong column, SQL that is none
        return ConfigError(f"Spark says: {_STATE.sub('', text).strip().splitlines()[0]}")
    return None
