"""The process of the judge: it belongs to no launcher, ends by itself, and nobody waits for it.

If it fails, the job only runs unwatched.
"""

import ctypes
import gc
import json
import os
import signal
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from oddrank import _native, launch
from oddrank.control import tcp_store
from oddrank.control.address import ADDRESS
from oddrank.run import say
from oddrank.run.collect import children
from oddrank.run.judge import END_SECONDS, Judge
from oddrank.run.outputs import earlier
from oddrank.run.snapshot import Taker
from oddrank.run.start import FOREVER, LISTENER, Settings, store_key
from oddrank.run.watch import Watch

# Guards say what changes at once. Heartbeats only show that a host is still there.
_HEARTBEAT_MS, _SILENCE_MS = 10_000, 30_000
# For who reads stderr slowly: if nobody does, a launcher may wait for this process to end.
_LAST_WORDS_SECONDS = 5.0
_PR_SET_NAME = 15


def main(arguments: Sequence[str]) -> None:
    """Runs as the judge's process. Its only argument: Settings as JSON, its secret in ADDRESS."""
    _leave_everything()
    try:
        settings = Settings(**json.loads(arguments[0]))
        address = os.environ.pop(ADDRESS)
        try:
            _judge(settings, address)
        finally:
            # Another run of the same launcher may have left its own address there by now.
            with suppress(OSError, ValueError):
                if Path(settings.file).read_text(encoding="ascii") == address:
                    os.unlink(settings.file)
    except Exception as error:
        say.lines([f"the job goes on unwatched: {type(error).__name__}: {error}"])
    say.wait_written(_LAST_WORDS_SECONDS)


def _judge(settings: Settings, address: str) -> None:
    core = _native.core()
    token = core.control_parse_address(address)[2]
    hub = core.Hub(
        LISTENER, settings.world["size"], token, settings.host, FOREVER, _HEARTBEAT_MS,
        _SILENCE_MS,
    )  # fmt: skip
    if settings.publish and (master := launch.current().master):  # nobody waits for the thread
        arguments = (master, store_key(settings.restart), address, FOREVER)
        threading.Thread(target=tcp_store.put, args=arguments, daemon=True).start()
    # Modules stay. Snapshots of 10,000 ranks are objects enough to walk.
    gc.collect()
    gc.freeze()
    taker = Taker(hub, settings.host, [Path(each) for each in settings.folders])
    try:
        judge = Judge(settings, hub, taker, Watch(time.monotonic(), settings.options["stall"]))
        if settings.options["history"] is not None:
            judge.earlier, trouble = earlier(Path(settings.options["history"]))
            if trouble:
                say.lines([trouble])
        judge.run()
    finally:
        hub.end(0, END_SECONDS)
    judge.say_again()


def _leave_everything() -> None:
    """Keeps stderr and the listener of what rank 0 has open: a launcher may wait for the rest."""
    _native.core().ignore_launchers_signals()
    ctypes.CDLL(None).prctl(_PR_SET_NAME, b"oddrank-judge", 0, 0, 0)
    children.close_all_but(LISTENER)
    os.set_inheritable(LISTENER, False)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    with suppress(OSError):
        os.chdir("/")
