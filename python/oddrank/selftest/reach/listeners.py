"""Where a node waits for the others' connections, and sends back what comes."""

import selectors
import socket
import threading
import time
from collections.abc import Iterable

# An attempt's own token, and no more.
TOKEN = 16
_BACKLOG = 256
_MOST = 512


class Listeners:
    """An ephemeral port on each address, served by a thread of its own until `seconds` are over.

    Not by the stages themselves: they end on different nodes at different times, and who is through
    with its own attempts must still answer the others'.
    """

    def __init__(self, addresses: Iterable[str], seconds: float) -> None:
        """OSError in `failed` where an address can't be listened at."""
        self.ports: dict[str, int] = {}
        self.failed: dict[str, str] = {}
        self._end = time.monotonic() + seconds
        self._selector = selectors.DefaultSelector()
        for address in addresses:
            try:
                self.ports[address] = self._listen(address)
            except OSError as error:
                self.failed[address] = error.strerror or str(error)
        threading.Thread(target=self._serve, name="oddrank-reach", daemon=True).start()

    def _listen(self, address: str) -> int:
        listener = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        try:
            listener.bind((address, 0))
            listener.listen(_BACKLOG)
        except OSError:
            listener.close()
            raise
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ, True)
        return int(listener.getsockname()[1])

    def _serve(self) -> None:
        while (left := self._end - time.monotonic()) > 0:
            for key, _ in self._selector.select(left):
                assert isinstance(key.fileobj, socket.socket)
                try:
                    if key.data:
                        self._accept(key.fileobj)
                    else:
                        self._send_back(key.fileobj)
                except OSError:  # gone before we came, or out of descriptors
                    if not key.data:
                        self._drop(key.fileobj)
        for key in [*self._selector.get_map().values()]:
            assert isinstance(key.fileobj, socket.socket)
            self._drop(key.fileobj)
        self._selector.close()

    def _accept(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        if len(self._selector.get_map()) > _MOST:  # strangers that stay
            connection.close()
            return
        connection.setblocking(False)
        self._selector.register(connection, selectors.EVENT_READ, False)

    def _send_back(self, connection: socket.socket) -> None:
        data = connection.recv(TOKEN)
        if data:
            connection.send(data)
        else:
            self._drop(connection)

    def _drop(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        connection.close()
