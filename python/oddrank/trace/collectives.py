"""Records the collectives that a process has issued, and which are open, in its record file.

It sees calls of torch.distributed, DDP's gradient buckets, functional and compiled collectives and
point-to-point operations, from any thread; other operations cost nothing more. It does not see
replays of CUDA graphs, groups whose class is written in Python, and data sent without
torch.distributed.
"""

import functools
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from os import PathLike, fspath
from types import ModuleType
from typing import Any, Literal, NamedTuple, cast

from oddrank import _native
from oddrank.errors import OddrankError
from oddrank.finding import fold
from oddrank.trace import device_times, torch_hooks

# c10d's names of operations -> those that users call.
OPS = {
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce_coalesced",
    "allgather": "all_gather",
    "_allgather_base": "all_gather_into_tensor",
    "allgather_coalesced": "all_gather_coalesced",
    "allgather_into_tensor_coalesced": "all_gather_into_tensor_coalesced",
    "_reduce_scatter_base": "reduce_scatter_tensor",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all_single",
    "recv_any_source": "recv",
}


class Collective(NamedTuple):
    """One operation as its process issued it."""

    thread: int  # native id of the thread that issued it (threading.get_native_id)
    group: str  # name of the process group, the same on all its ranks
    seq: int | None
    """The number among the group's collectives, the same on all its ranks; None: not issued to the
    end, or not numbered. For send and recv: the number among the messages from sender to receiver,
    the same on both; None for a recv after one from any rank."""
    op: str  # c10d's name: allreduce_, _allgather_base_, send, ...
    bytes: int
    """Bytes that this rank puts in (broadcast, scatter, recv: that it gets); 0 for barriers."""
    state: Literal["open", "ended", "issued", "timed"]
    """open: begun and not ended. ended: completed or failed; gloo's send and recv end once they are
    waited for, or their Work is gone. issued: it goes on on a device (NCCL); its end is not
    recorded. timed: of read(timed=True)."""
    begin_ns: int | None
    """Wall clock; None: overwritten by newer ones, or the record's clocks can't convert it."""
    end_ns: int | None
    ranks: tuple[int, ...] = ()  # the group's, global, in the order of the group; empty: unknown
    backend: str = ""  # nccl, gloo, ...; empty: unknown
    dtype: str = ""  # torch's name: float32; empty for barriers
    bytes_in: int = 0  # bytes that this rank puts in
    bytes_out: int = 0  # bytes that this rank gets
    peer: int | None = None  # the global rank that a send goes to, or a recv waits for; None: any
    tag: int | None = None  # the tag of a send or recv
    root: int | None = None  # the global rank of the root of broadcast, reduce, gather and scatter
    failed: bool = False  # it ended with an error
    number: int = 0  # its number among the collectives of this process, from 1

    @property
    def open(self) -> bool:
        return self.state == "open"

    @property
    def began(self) -> float | None:
        """Unix time, in seconds."""
        return seconds(self.begin_ns)

    @property
    def ended(self) -> float | None:
        return seconds(self.end_ns)

    def as_data(self) -> dict[str, Any]:
        """Returns `collective` of an element of data.ranks of `trace where --json`."""
        data = self._asdict()
        named = {"operation": self.op.strip("_"), "sequence": data.pop("seq")}
        named |= {"tid": data.pop("thread"), "began": self.began, "ended": self.ended}
        # The ranks as text: a list for each rank would be megabytes for a thousand ranks.
        named |= {"ranks": fold(self.ranks)}
        return {k: v for k, v in (data | named).items() if k not in {"op", "begin_ns", "end_ns"}}


def seconds(nanoseconds: int | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1e9


def collective_of(found: Sequence[Any]) -> Collective:
    """Makes a collective of the compiled reader's tuple."""
    thread, group, *more = found
    ranks = ranks_of(group[5])
    return Collective._make((thread, group[0], *more[:6], ranks, group[1], *more[6:]))


def op_name(recorded: str) -> str:
    """Returns the name that users call: all_reduce. recorded: c10d's name."""
    name = recorded.rstrip("_")
    return OPS.get(name, OPS.get(f"_{name}", name))


@dataclass(frozen=True)
class ProcessGroup:
    """A process group of a record, and how far its process has come in it."""

    name: str
    backend: str
    text: str  # its description
    size: int
    own: int | None  # the process's rank in the group
    ranks: tuple[int, ...]  # global, in the order of the group; empty: unknown
    begun: int = 0  # its collectives that were begun, without send and recv, as in those below
    issued: int | None = None  # the highest sequence number that was issued
    ended: int | None = None  # the highest known to have ended: operations on a device are not
    last: float | None = None  # Unix time of the begin of the last one

    @property
    def title(self) -> str:
        """The name that users know: its description, if it has one. torch's is "undefined"."""
        return self.name if self.text in ("", "undefined") else self.text


def group_of(found: Sequence[Any], *progress: Any) -> ProcessGroup:
    """Makes a group of the compiled reader's tuple."""
    name, backend, text, size, own, runs = found
    return ProcessGroup(name, backend, text, size, own, ranks_of(runs), *progress)


@functools.lru_cache(maxsize=4096)
def ranks_of(runs: tuple[tuple[int, int, int], ...]) -> tuple[int, ...]:
    """Returns the ranks of a group: runs of (first, step, count). All records share the result."""
    return tuple(first + step * i for first, step, count in runs for i in range(count))


def start() -> None:
    """Records collectives from now on, while this process is armed.

    During the first call no other thread may issue a collective. MissingPartError if `_torch` is
    absent or does not fit the running torch, and that one has no hooks (before 2.14).
    """
    if _native.collective_recorder() == "hooks":
        torch_hooks.start()
    else:
        _native.torch().start_collectives(_native.core().trace_collective_sink())
    device_times.start()


def read(
    path: str | PathLike[str], content: bytes | None = None, *, timed: bool = False
) -> list[Collective]:
    """Reads the collectives that a record file still holds, in the order of issue.

    These are the newest ones and all open ones. The process may be running, hung or dead.
    content: the record, if it is in no file. timed: instead of them the newest calls whose time on
    a device is known; they end as much later than they were issued as they took there. OddrankError
    if it is no record.
    """
    found = _native.core().trace_collectives(fspath(path), content, timed=timed)
    return [collective_of(each) for each in found]


@functools.cache
def start_with_torch(speaks: bool) -> None:
    """Starts once torch.distributed has been imported. speaks: warn if that fails."""

    def begin(_: ModuleType) -> None:
        try:
            start()
        except OddrankError as error:
            if speaks:
                warnings.warn(
                    f"oddrank records no collectives: {error}", RuntimeWarning, stacklevel=2
                )

    after_import("torch.distributed.distributed_c10d", begin)


def after_import(name: str, act: Callable[[ModuleType], None]) -> None:
    """Calls `act` with the module `name`: now if it is loaded, else right after its first import.
    Does not import it: that may take seconds. Suppresses exceptions of `act`."""
    module = sys.modules.get(name)
    if module is not None:
        _quietly(act, module)
    else:
        sys.meta_path.insert(0, _Watch(name, act))


class _Watch(MetaPathFinder):
    """Waits for one import."""

    def __init__(self, name: str, act: Callable[[ModuleType], None]) -> None:
        self._name, self._act, self._asked = name, act, False

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self._name or self._asked:
            return None
        self._asked = True  # stays in sys.meta_path: importlib is walking the list
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = cast(Any, _Loader(spec.loader, self._act))
        return spec


class _Loader:
    """Stands in for a module's own loader, and puts it back when it loads the module."""

    def __init__(self, loader: Any, act: Callable[[ModuleType], None]) -> None:
        self._loader, self._act = loader, act

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        _quietly(self._act, module)


def _quietly(act: Callable[[ModuleType], None], module: ModuleType) -> None:
    with suppress(Exception):  # a recorder must not break an import
        act(module)
