"""A network between an agent and its server that fails in the ways networks do."""

import os
import socket
import threading
import time
from contextlib import suppress

CHUNK = 1 << 16


class Proxy:
    """Passes connections on, and does to them what `mode` says.

    "pass": nothing; "cut": breaks those there are and closes new ones at once; "silent": takes
    everything and lets nothing through; "garbage": answers with random bytes; "slow": holds each
    piece back for a while.
    """

    def __init__(self, port):
        self._server = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._mode = "pass"
        self._open = set()
        self.refused = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def mode(self):
        return self._mode

    @mode.setter
    def mode(self, mode):
        self._mode = mode
        if mode in ("cut", "garbage"):
            self._close(*self._open)

    def end(self):
        self._close(self._listening, *self._open)

    def _close(self, *sockets):
        for one in sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
            self._open.discard(one)

    def _accept(self):
        with suppress(OSError):
            while True:
                one, _ = self._listening.accept()
                self._open.add(one)
                threading.Thread(target=self._serve, args=(one,), daemon=True).start()

    def _serve(self, one):
        if self._mode in ("cut", "garbage"):
            self.refused += 1
            with suppress(OSError):
                if self._mode == "garbage":
                    one.recv(CHUNK)
                    one.sendall(os.urandom(4096))
            self._close(one)
            return
        try:
            other = socket.create_connection(("127.0.0.1", self._server))
        except OSError:
            self._close(one)
            return
        self._open.add(other)
        for pair in ((one, other), (other, one)):
            threading.Thread(target=self._pump, args=pair, daemon=True).start()

    def _pump(self, source, sink):
        with suppress(OSError):
            while piece := source.recv(CHUNK):
                if self._mode == "silent":
                    continue
                if self._mode == "slow":
                    time.sleep(0.2)
                sink.sendall(piece)
        self._close(source, sink)
