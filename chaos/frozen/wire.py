"""A wire to a server that can be made slow: bytes go through it both ways, later."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

_CHUNK = 64 << 10


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
        while True:
            try:
                here, _ = self._listener.accept()
            except OSError:  # closed
                return
            try:
                there = socket.create_connection(("127.0.0.1", self._target), timeout=5)
            except OSError:
                here.close()
                continue
            there.settimeout(None)
            for source, sink in ((here, there), (there, here)):
                sink.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_CHUNK):
                if self.delay:
                    time.sleep(self.delay)
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
