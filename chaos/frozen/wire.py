"""A wire to a server that can be made slow: bytes go through it both ways, later."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

_CHUNK = 64 << 10
_CONNECT_SECONDS = 5.0


class Wire:
    """Listens on a free port of the loopback and passes everything on to another one."""

    def __init__(self, port: int) -> None:
        self._target = port
        self.delay = 0.0  # seconds before each piece is passed on
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        """Nothing here may fail or wait but for the next: who comes later would not be passed on any more."""
        while True:
            try:
                here, _ = self._listener.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._carry, args=(here,), daemon=True).start()

    def _carry(self, here: socket.socket) -> None:
        """One connection, both ways; closed when neither way uses it any more, as its number is given out again."""
        with here, contextlib.suppress(OSError):
            there = socket.create_connection(("127.0.0.1", self._target), timeout=_CONNECT_SECONDS)
            with there:
                there.settimeout(None)
                for end in (here, there):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                back = threading.Thread(target=self._pump, args=(there, here), daemon=True)
                back.start()
                self._pump(here, there)
                back.join()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_CHUNK):
                if self.delay:
                    time.sleep(self.delay)
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
