"""pyarrow without the event loop and without pandas: both take long to load, and pandas takes 40 MB.

`pyarrow.array` and `pyarrow.scalar` load pandas, where that is installed, to see whether they were given something of
it; so does a plain number among the arguments of a function that computes. `column` makes the few kinds of columns that
blocks and archive files have from plain lists, and an item of one is a scalar.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from . import heap

if TYPE_CHECKING:
    import pyarrow as pa

    from ..records import Attempt

P = ParamSpec("P")
T = TypeVar("T")
_CODES = {"int16": "h", "int32": "i", "int64": "q", "float64": "d", "double": "d", "timestamp[us, tz=UTC]": "q"}
_loading = threading.Lock()
_state = {"begun": False, "ready": False}


def is_ready() -> bool:
    """Whether it is loaded; if not, that begins now, in a thread. Until then blocks are written without it."""
    if not _state["ready"] and not _state["begun"]:
        _state["begun"] = True
        # No daemon: an interpreter that ends in the middle of loading a library may crash.
        threading.Thread(target=load, name="holdfast-arrow").start()
    return _state["ready"]


def load() -> None:
    """Load it here; only where waiting harms nobody.

    Never a part of it first that the whole imports, such as `pyarrow.ipc`: two threads that begin at both ends wait for
    each other, Python lets one of them go on, and it finds half of a library.
    """
    with _loading:
        import pyarrow  # noqa: F401 - for those that come next

        _state["ready"] = True


def column(values: Sequence[Any], type: pa.DataType) -> pa.Array:
    """The values of one column, as `pyarrow.array` makes them."""
    import pyarrow as pa

    count = len(values)
    present = [value is not None for value in values]
    if count and not any(present):
        return pa.nulls(count, type)
    valid = None if all(present) else pa.py_buffer(_bits(present))
    if isinstance(type, pa.MapType):
        pairs = [pair for value in values if value is not None for pair in value]
        inner = pa.StructArray.from_arrays(
            [column([key for key, _ in pairs], type.key_type), column([item for _, item in pairs], type.item_type)],
            fields=[type.key_field, type.item_field],
        )
        return pa.Array.from_buffers(type, count, [valid, _ends(map(_length, values))], children=[inner])
    if isinstance(type, pa.ListType):
        inner = _attempts([each for value in values if value is not None for each in value], type.value_type)
        return pa.Array.from_buffers(type, count, [valid, _ends(map(_length, values))], children=[inner])
    code = _CODES.get(str(type))
    if code is not None:
        numbers = array(code, [0 if value is None else value for value in values])
        return pa.Array.from_buffers(type, count, [valid, pa.py_buffer(numbers)])
    parts = [_bytes(value) for value in values]
    return pa.Array.from_buffers(type, count, [valid, _ends(map(len, parts)), pa.py_buffer(b"".join(parts))])


def _attempts(found: Sequence[Attempt], type: pa.StructType) -> pa.Array:
    """The one kind of rows in rows: attempts, whose instants are seconds."""
    import pyarrow as pa

    texts = [[each.worker for each in found], [each.error for each in found]]
    instants = [[None if each.start is None else round(each.start * 1e6) for each in found]]
    instants += [[round(each.end * 1e6) for each in found]]
    fields = [type.field(place) for place in range(type.num_fields)]
    values: list[Sequence[Any]] = [*instants, *texts]
    columns = [column(each, field.type) for each, field in zip(values, fields, strict=True)]
    return pa.StructArray.from_arrays(columns, fields=fields)


def as_type(column: Any, type: pa.DataType) -> Any:
    """A cast where one is needed: it loads the part of pyarrow that computes, 9 MB."""
    return column if column.type == type else column.cast(type)


def taken(rows: pa.Table, places: Sequence[int]) -> pa.Table:
    """The rows at these places."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.take(rows, column(places, pa.int64()))


async def beside(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call it in a thread that gives back what columns needed meanwhile: pyarrow keeps memory for each thread."""
    return await asyncio.to_thread(_call_and_release, partial(function, *args, **kwargs))


def _call_and_release(call: Callable[[], T]) -> T:
    try:
        return call()
    finally:
        release()


def release() -> None:
    """Give freed memory back to the system; best where nobody holds rows any more."""
    pool = getattr(sys.modules.get("pyarrow"), "default_memory_pool", None)
    if pool is not None:  # else it is not loaded, or another thread is at it
        pool().release_unused()
        heap.give_back()  # the system's pool does not


def _ends(lengths: Iterable[int]) -> pa.Buffer:
    import pyarrow as pa

    return pa.py_buffer(array("i", list(accumulate(lengths, initial=0))))


def _length(value: Any) -> int:
    return 0 if value is None else len(value)


def _bytes(value: Any) -> bytes:
    if value is None:
        return b""
    return value.encode() if isinstance(value, str) else bytes(value)


def _bits(flags: Sequence[bool]) -> bytes:
    packed = bytearray(-(-len(flags) // 8))
    for place, flag in enumerate(flags):
        if flag:
            packed[place >> 3] |= 1 << (place & 7)
    return bytes(packed)
