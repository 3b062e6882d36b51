"""Workers: lanes over one buffer, a claimer, a settler and a keeper of leases."""

from .context import Context
from .isolation import Gate
from .worker import Worker

__all__ = ["Context", "Gate", "Worker"]
