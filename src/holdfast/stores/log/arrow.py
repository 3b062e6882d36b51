"""pyarrow, which takes up to a second to load together with pandas: never in an event loop."""

from __future__ import annotations

import threading

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
    """Load it here; only where waiting harms nobody."""
    with _loading:
        import pyarrow as pa

        pa.array([b""], pa.binary())  # the first one looks for pandas, and loads it
        _state["ready"] = True
