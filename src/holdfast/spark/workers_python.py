"""The Python of Spark's workers: what it lacks is said when the format is registered, not by the first query."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOK = "import sys; print('%d.%d' % sys.version_info[:2]); import holdfast.spark"


def check(spark: SparkSession) -> None:
    """ConfigError when the workers' Python is another than this one and cannot do the work.

    Only where it can be looked at from here: with Spark Connect the workers are elsewhere.
    """
    context = getattr(spark, "_sc", None)
    if context is None:
        return
    name = context.pythonExec
    found = shutil.which(name)
    if found is None:
        if context.master.startswith("local"):
            raise ConfigError(f"Spark's workers would run {name}, and there is no such program: {_way_out()}")
        return
    if Path(found).parent == Path(sys.executable).parent:
        return
    if lacking := _lacking(found):
        raise ConfigError(f"Spark's workers would run {found}, {lacking}: {_way_out()}")


@functools.cache
def _lacking(python: str) -> str | None:
    """What another Python lacks to work for this one; None: nothing."""
    ours = f"{sys.version_info[0]}.{sys.version_info[1]}"
    try:
        done = subprocess.run([python, "-c", _LOOK], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"which does not run ({error})"
    version = done.stdout.strip()
    if version != ours:
        return f"which is Python {version or 'of an unknown version'} and not {ours}"
    last = done.stderr.strip().splitlines()
    return (
        f"which cannot import holdfast.spark ({last[-1] if last else 'it does not say why'})"
        if done.returncode
        else None
    )


def _way_out() -> str:
    return f"set PYSPARK_PYTHON={sys.executable} before the session starts"
