"""Celery and kombu on any store of Holdfast: `Celery(broker="holdfast+file:///var/lib/jobs", backend="holdfast+…")`.

Importing this makes the URLs known. It needs the extra `celery`.
"""

from __future__ import annotations

from celery.app.backends import BACKEND_ALIASES
from kombu.transport import TRANSPORT_ALIASES

from .backend import Backend
from .transport import Transport

TRANSPORT_ALIASES["holdfast"] = "holdfast.kombu:Transport"
BACKEND_ALIASES["holdfast"] = "holdfast.kombu:Backend"

__all__ = ["Backend", "Transport"]
