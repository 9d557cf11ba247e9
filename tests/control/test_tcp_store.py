"""Keys of torch's TCPStore, set and read without torch."""

import socket
import threading
from contextlib import suppress

import pytest

from oddrank.control.address import get_from_store, put_in_store
from patience import PATIENCE


@pytest.mark.needs("torch")
@pytest.mark.parametrize("use_libuv", [True, False])
def test_torch_reads_what_was_put_and_the_other_way_round(use_libuv):
    from torch.distributed import TCPStore

    store = TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False, use_libuv=use_libuv)
    master = ("127.0.0.1", store.port)
    later = threading.Timer(0.3, store.set, ("é", "from torch"))  # the reader waits for it
    later.start()
    assert get_from_store(master, "é", PATIENCE.limit) == "from torch"
    later.join()
    put_in_store(master, "oddrank/run/0", "from oddrank", PATIENCE.limit)
    assert store.get("oddrank/run/0") == b"from oddrank"


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request", b"\0" + b"\xff" * 8])
def test_a_stranger_at_the_port_is_no_store(answer):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            with suppress(OSError):  # the test is over
                while True:
                    with server.accept()[0] as link:
                        link.recv(100)
                        link.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        with pytest.raises(TimeoutError, match="no answer from torch's store"):
            get_from_store(server.getsockname(), "key", 0.5)
