"""Many seeds in one real process."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import pkgutil
import sys
import warnings
from collections.abc import Iterator

from . import seams
from .plan import plan_of
from .scene import play

_COLLECT_ALL_EVERY = 200


@contextlib.contextmanager
def ready() -> Iterator[None]:
    """Everything imported and replaced; on one core, since only one thread ever runs."""
    from holdfast.stores import log

    for each in pkgutil.walk_packages(log.__path__, "holdfast.stores.log."):
        with contextlib.suppress(ImportError, AssertionError):  # of another system, or without its package
            importlib.import_module(each.name)
    import pyarrow
    import pyarrow.parquet  # the engine imports it late

    pyarrow.set_cpu_count(1)
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None  # tasks of killed processes
    if cores:
        os.sched_setaffinity(0, {min(cores, key=lambda core: (core + os.getpid()) % 97)})
    gc.disable()
    warnings.simplefilter("ignore", RuntimeWarning)  # as above: coroutines that were never awaited
    try:
        with seams.installed():
            play(plan_of("bucket", 0))  # imports what is imported late
            gc.collect()
            gc.freeze()
            yield
    finally:
        gc.enable()
        gc.unfreeze()
        gc.collect()
        sys.unraisablehook = hook
        if cores:
            os.sched_setaffinity(0, cores)


def tidy(count: int) -> None:
    """Between two seeds: collection must not run finalizers inside one."""
    gc.collect(0 if count % _COLLECT_ALL_EVERY else 2)
