"""A pipe that tells an event loop of kombu, or a thread that waits in `drain_events`, that there is something."""

from __future__ import annotations

import os
import select
import threading


class Bell:
    """`ring` from any thread."""

    def __init__(self) -> None:
        self._out, self._in = os.pipe()
        os.set_blocking(self._out, False)
        os.set_blocking(self._in, False)
        self._lock = threading.Lock()  # no ring may reach a file that has the number of a closed pipe
        self.closed = False

    def fileno(self) -> int:
        return self._out

    def ring(self) -> None:
        with self._lock:
            try:
                if not self.closed:
                    os.write(self._in, b"!")
            except BlockingIOError:  # it rings enough
                pass

    def hush(self) -> None:
        """What rang until now was heard."""
        try:
            while os.read(self._out, select.PIPE_BUF):
                pass
        except BlockingIOError:
            pass

    def wait(self, seconds: float) -> None:
        select.select([self._out], [], [], seconds)
        self.hush()

    def close(self) -> None:
        with self._lock:
            if not self.closed:
                self.closed = True
                os.close(self._out)
                os.close(self._in)

    def __del__(self) -> None:
        """Of a connection that nobody closed."""
        if not self.closed:
            os.close(self._out)
            os.close(self._in)
