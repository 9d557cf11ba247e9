"""How the ranks find rank 0: by torch's store, in a thread that may be abandoned.

No call of the store obeys its timeout when the store's host is stopped or cut off, so nobody waits
for this thread without a deadline; the guards talk to each other without the store. One call at a
time goes through a store: one that waits for a key keeps this process from setting another.
"""

import gc
import os
import threading
import time
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from oddrank.control import no_root
from oddrank.control.culprits import JOIN
from oddrank.errors import OddrankError
from oddrank.launch import refuse_half

if TYPE_CHECKING:
    from oddrank.control.session import Session
    from oddrank.launch import Launch

ADDRESS = "ODDRANK_CONTROL_ADDR"
_NVIDIA = "/dev/nvidiactl"
# What rank 0 does once it can be found: as it waits for the others, it is not at fault any more.
_PUBLISHED = "wait for the others"


class Rendezvous:
    """Meets the other ranks in the background; the worker need not know how it goes."""

    def __init__(self, launch: "Launch", session: "Session", seconds: float) -> None:
        self._launch, self._session = launch, session
        # Before the deadline, so that there is time to say that nobody was there.
        self._end = time.monotonic() + seconds - 1.5
        self._store: Any = None
        self._lock = threading.Lock()
        self._by_store = launch.world > 1 and not os.environ.get(ADDRESS)
        # A launcher that restarts ranks keeps its store: do not read the last run's address.
        self._key = f"oddrank/root/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
        self._search = no_root.Search(launch, self._end, lambda: session.stage != JOIN)

    def start(self) -> None:
        # A call of the store that fails prints 20 lines of C++ back trace as an error otherwise.
        # On GPUs NCCL's own errors come the same way.
        level = "ERROR" if os.path.exists(_NVIDIA) else "FATAL"
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", level)
        if self._by_store:
            self._search.start()
        thread = threading.Thread(target=self._meet, name="oddrank-rendezvous", daemon=True)
        thread.start()

    def store(self) -> Any:
        """torch's store of this job: the launcher's where it has one, else rank 0 hosts it.

        Whoever opens it on rank 0 publishes the address first: ranks that came by another way may
        be in a collective's setup by then, where rank 0 would wait for ranks that wait for it.
        """
        with self._lock:
            if self._store is None:
                store = _open_store(self._launch, self._end, self._search)
                if self._launch.rank == 0 and self._by_store:
                    store.set(self._key, self._session.address())
                self._store = store
            return self._store

    def _meet(self) -> None:
        try:
            self._exchange()
        except Exception as error:
            text = self._search.fails(error)
            if self._launch.rank == 0 and self._session.stage == JOIN:
                with suppress(OddrankError):  # without its guard nobody hears it
                    self._session.fail(text)  # nobody can come: no need to wait for them
        else:
            self._search.found()

    def _exchange(self) -> None:
        store = self.store() if self._by_store else None
        self._search.goes_on(no_root.ASK)
        if self._launch.rank == 0:
            self._session.wait_in_join(_PUBLISHED)
        elif store is not None:
            self._session.connect(store.get(self._key).decode())


def check(launch: "Launch") -> None:
    """OddrankError where the ranks could never meet."""
    if launch.launcher == "alone":
        refuse_half()
    if launch.world > 1 and launch.master is None:
        alone = f" ({ADDRESS} is for the guards)" if os.environ.get(ADDRESS) else ""
        raise OddrankError(
            f"{launch.world} ranks, and no way for torch to connect them{alone}:"
            " export MASTER_ADDR (rank 0's host) and MASTER_PORT, or start them with torchrun"
        )


def _import_torch() -> Any:
    """torch.distributed, with the garbage collector off: there is nothing to collect in an import.

    Nor does it go through all these objects ever again, which would stop a rank in the middle of
    what it times.
    """
    gc.disable()
    try:
        import torch.distributed as dist
    finally:
        gc.freeze()
        gc.enable()
    return dist


def _open_store(launch: "Launch", end: float, search: no_root.Search) -> Any:
    dist = _import_torch()
    search.goes_on(no_root.OPEN)
    if launch.master is None:
        return dist.HashStore()
    host, port = launch.master
    hosted = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    left = max(1.0, end - time.monotonic())
    store = dist.TCPStore(
        host,
        port,
        launch.world,
        is_master=launch.rank == 0 and not hosted,
        timeout=timedelta(seconds=left / 2),  # it tries twice
        wait_for_workers=False,
        multi_tenant=not hosted,
    )
    store.set_timeout(timedelta(seconds=max(1.0, end - time.monotonic())))
    return store
