"""Lines of files on their way through Python: read as bytes, given back as rows with a value and columns of text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import ConfigError
from .rows import READY, WAS, WHY, quoted

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

LINE, FILE, START = "__line", "__file", "__start"
BOM = b"\xef\xbb\xbf"
_ROWS, _BATCH_BYTES = 2000, 4 << 20  # of a batch on its way back to Spark
# What Spark takes for every kind of file.
FILE_OPTIONS = (
    *("pathGlobFilter", "recursiveFileLookup", "modifiedBefore", "modifiedAfter", "ignoreCorruptFiles"),
    *("ignoreMissingFiles", "maxFilesPerTrigger", "maxBytesPerTrigger", "latestFirst", "fileNameOnly", "maxFileAge"),
    *("cleanSource", "sourceArchiveDir", "maxCachedFiles"),
)


def lines(reader: Any, place: str, options: Mapping[str, str], **text: str) -> DataFrame:
    """The lines of files as bytes, and where they are from; columns of their folders (`day=…`) come along as text."""
    from pyspark.sql import functions as F

    df = reader.format("text").options(**{"lineSep": "\n", **options, **text}).load(place)
    where = [
        F.col("value").cast("binary").alias(LINE),
        F.col("_metadata.file_path").alias(FILE),
        F.col("_metadata.file_block_start").alias(START),
    ]
    folders = [F.col(quoted(name)).cast("string") for name in df.columns if name != "value"]
    return df.select(*where, *folders)  # type: ignore[no-any-return]  # of either reader


def folders_of(df: DataFrame) -> list[str]:
    """The columns that come from the names of folders."""
    return [name for name in df.columns if name not in (LINE, FILE, START)]


def parted(given: Mapping[str, str], known: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Options of these names, and the others."""
    lower = {name.lower() for name in known}
    return (
        {name: value for name, value in given.items() if name.lower() in lower},
        {name: value for name, value in given.items() if name.lower() not in lower},
    )


def is_true(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ConfigError(f"option: true or false, not {text!r}")
    return text.lower() == "true"


def schema_of(columns: Sequence[str]) -> Any:
    from pyspark.sql.types import BinaryType, StringType, StructType

    schema = StructType().add(READY, BinaryType()).add(WAS, BinaryType()).add(WHY, StringType())
    for name in columns:
        schema.add(name, StringType())
    return schema


def batched(rows: Iterator[list[Any]], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    types = [pa.binary(), pa.binary(), pa.string(), *[pa.string()] * len(columns)]
    while some := _some(rows):
        arrays = [pa.array(column, type) for column, type in zip(zip(*some, strict=True), types, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, names=[READY, WAS, WHY, *columns])


def _some(rows: Iterator[list[Any]]) -> list[list[Any]]:
    """Rows for one batch."""
    some: list[list[Any]] = []
    size = 0
    while len(some) < _ROWS and size < _BATCH_BYTES and (row := next(rows, None)) is not None:
        some.append(row)
        size += len(row[1])
    return some
