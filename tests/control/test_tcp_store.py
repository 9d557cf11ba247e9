"""Keys of torch's TCPStore, set and read without torch."""

import socket
import struct
import threading
from contextlib import contextmanager, suppress

import pytest

from oddrank.control.address import fetcher, get_from_store, put_in_store
from patience import PATIENCE
from processes import captured


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


@contextmanager
def answering(answer):
    """Yields the host and the port of who says the same to all callers."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            with suppress(OSError):  # the test is over
                while True:
                    with server.accept()[0] as link:
                        link.recv(100)
                        link.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request", b"\0" + b"\xff" * 8])
def test_a_stranger_at_the_port_is_no_store(answer):
    with answering(answer) as master, pytest.raises(TimeoutError, match="no answer from torch's"):
        get_from_store(master, "key", 0.5)


def test_a_guard_that_asks_the_store_leaves_the_address_for_the_others_of_its_host(tmp_path):
    address, file = "10.0.0.1:29511#secret", tmp_path / "job" / "root"
    ask = fetcher("oddrank/run/0", PATIENCE.limit, str(file))
    place = {"RANK": "2", "LOCAL_RANK": "0", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}
    with answering(b"\0" + struct.pack("<Q", len(address)) + address.encode()) as (host, port):
        done = captured(ask, **place, MASTER_ADDR=host, MASTER_PORT=str(port))
    assert (done.stdout, file.read_text()) == (address, address), done.stderr
    assert not captured(ask, **place, MASTER_ADDR="", MASTER_PORT="", check=True).stdout
