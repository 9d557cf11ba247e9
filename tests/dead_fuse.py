"""Mounts a file system that does not answer: a FUSE server that replies to INIT only."""

import ctypes
import os
import select
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
_MNT_DETACH = 2
_REQUEST = 1 << 18
# Structures of the kernel's fuse.h: in_header, init_in, out_header, init_out.
_IN, _INIT_IN, _OUT = struct.Struct("<IIQQIIII"), struct.Struct("<IIII"), struct.Struct("<IiQ")
_INIT_OUT = struct.Struct("<IIIIHHIIHHI28x")


@contextmanager
def dead_file_system(folder: Path, *, takes: bool = False) -> Iterator[None]:
    """Makes every access to `folder` hang until the context ends. Needs root and /dev/fuse.

    The server behaves like a stopped one. takes: it also reads requests and never answers them; a
    process that waits for such an answer can't be killed.
    """
    server = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    over = threading.Event()
    taker = threading.Thread(target=_take, args=(server, over))
    options = f"fd={server},rootmode=40000,user_id=0,group_id=0"
    try:
        if _LIBC.mount(b"dead", os.fsencode(folder), b"fuse", 0, options.encode()) != 0:
            raise OSError(ctypes.get_errno(), f"mount FUSE on {folder}")
        try:
            _say_hello(server)
            if takes:
                taker.start()
            yield
        finally:
            _LIBC.umount2(os.fsencode(folder), _MNT_DETACH)
    finally:
        over.set()
        if taker.ident:
            taker.join()
        os.close(server)  # waiting processes go on, with an error


def _say_hello(server: int) -> None:
    request = os.read(server, _REQUEST)
    unique = _IN.unpack_from(request)[2]
    major, _, ahead, _ = _INIT_IN.unpack_from(request, _IN.size)
    answer = _INIT_OUT.pack(major, 31, ahead, 0, 16, 12, 1 << 16, 1, 0, 0, 0)
    os.write(server, _OUT.pack(_OUT.size + len(answer), 0, unique) + answer)


def _take(server: int, over: threading.Event) -> None:
    while not over.is_set():
        if select.select([server], [], [], 0.05)[0]:
            os.read(server, _REQUEST)
