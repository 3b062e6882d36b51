"""Workers: slots over one buffer, a claimer, a settler and a heartbeat."""

from .context import Context
from .isolation import Isolation
from .worker import Worker

__all__ = ["Context", "Isolation", "Worker"]
