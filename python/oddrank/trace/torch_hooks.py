"""Records collectives with the hooks that torch has from 2.14 on, where `_torch` does not fit.

They tell less than `_torch` sees: no tag of a message, no monitored_barrier(), and not when a call
ends. A thread looks for that while calls are open, so an end is noted a little late.
"""

import atexit
import functools
import os
import sys
import time
import weakref
from _thread import allocate_lock, get_ident, start_new_thread
from contextlib import suppress
from threading import Event
from typing import Any, NamedTuple

from oddrank import _native

_HOOK = 0x0DD4A2C  # our hooks' number in each group
_SHORTEST, _LONGEST, _GROWTH = 0.001, 0.01, 1.25  # seconds between two looks, which become rarer
_FEW, _MOST = 8, 1024  # open calls that each call looks at, and that are kept
# torch's name -> c10d's; Role and Side (csrc/trace/format/format.hpp); c10d's names if it takes one
# tensor and gives one, and if it takes as many as it gives.
_KINDS = {
    "SEND": ("send", 2, 1, "", ""),
    "RECV": ("recv_", 3, 2, "", ""),
    "BROADCAST": ("broadcast_", 1, 0, "", ""),
    "ALLREDUCE": ("allreduce_", 0, 0, "", ""),
    "REDUCE": ("reduce_", 1, 0, "", ""),
    "ALLGATHER": ("allgather_", 0, 1, "_allgather_base_", "allgather_into_tensor_coalesced_"),
    "REDUCE_SCATTER": (
        "reduce_scatter_", 0, 1, "_reduce_scatter_base_", "reduce_scatter_tensor_coalesced_",
    ),
    "ALLTOALL": ("alltoall_", 0, 1, "alltoall_base_", "alltoall_"),
    "BARRIER": ("barrier", 0, 0, "", ""),
    "SCATTER": ("scatter_", 1, 2, "", ""),
    "GATHER": ("gather_", 1, 1, "", ""),
    # Names in torch 2.15; others have their name in lower case:
    "ALLREDUCE_COALESCED": ("allreduce_coalesced_", 0, 0, "", ""),
    "ALLGATHER_BASE": ("_allgather_base_", 0, 1, "", ""),
    "REDUCE_SCATTER_BASE": ("_reduce_scatter_base_", 0, 1, "", ""),
}  # fmt: skip
_NO_CALLS = {"SPLIT", "NEW_WINDOW", "UNKNOWN"}
_MESSAGES = {"send", "recv_", "recv_any_source_"}
_WAITS = {*_MESSAGES, "reduce_scatter_", *_KINDS["REDUCE_SCATTER"][3:]}  # end in wait(), with gloo

_core: Any = None
_over = False
_watches = False  # the thread runs; not in a forked child
_idle = True  # and would have to be woken
_wake = allocate_lock()  # released to wake it: an Event's frames would be seen in its stack
_stopped = Event()
# Thread -> (ticket, _Known of its call, frame and instruction that called).
_calls: dict[int, tuple[int, "_Known", int, int]] = {}
# Ticket -> [Work, whether only a wait ends it, in how many looks no other object held it].
_open: dict[int, list[Any]] = {}


class _Known(NamedTuple):
    """The properties of all calls with one name, on tensors of one type."""

    begin: Any
    tells_ends: bool  # a Work of NCCL only says that a device has the call
    waits: bool  # only a wait ends it
    is_message: bool  # the record numbers it
    counts: bool  # its numbers differ between ranks, since they count messages too: we count


class _Hooks:
    """The hooks of one group, which owns them: they hold no reference to it."""

    def __init__(self, group: Any, torch: Any) -> None:
        names = torch._C._distributed_c10d.HookOpName.__members__.items()
        self._kinds = {
            each.value: _KINDS.get(name, (f"{name.lower()}_", 0, 1, "", ""))
            for name, each in names
            if name not in _NO_CALLS
        }
        self._torch, self._group, self._size = torch, weakref.ref(group), group.size()
        self._known: dict[tuple[int, int, int, bool, Any, str], _Known] = {}
        self._count = 0
        with suppress(RuntimeError):  # a back end without a counter
            self._count = group._get_sequence_number_for_group()
        unseen = _native.core().trace_unseen  # by profilers, which may be ours
        group.register_pre_hook(_HOOK, unseen(self.before))
        group.register_post_hook(_HOOK, unseen(self.after))

    def before(self, told: Any) -> None:
        caller, thread = sys._getframe().f_back, get_ident()
        try:
            if 0 < len(_open) < _FEW:
                _look()
            if thread in _calls:  # it raised an exception
                _core.trace_collective_closed(_calls.pop(thread)[0], True)
            sent, got, partner = told.input_tensors, told.output_tensors, told.root
            n, m = len(sent), len(got)
            dtype, device = None, ""
            if n or m:
                tensor = sent[0] if n else got[0]
                dtype, device = tensor.dtype, "cpu" if tensor.is_cpu else tensor.device.type
            key = (told.name.value, n, m, partner < 0, dtype, device)
            known = self._known.get(key) or self._know(key)
            put = sent[0].nbytes if n == 1 else sum(t.nbytes for t in sent) if n else 0
            take = got[0].nbytes if m == 1 else sum(t.nbytes for t in got) if m else 0
            ticket = known[0](put, take, partner)
            _calls[thread] = (ticket, known, id(caller), caller.f_lasti if caller else -1)
            if _idle:
                _rouse()
        except Exception:  # of a torch that differs: nothing may disturb the call
            return

    def after(self, told: Any) -> None:
        try:
            ticket, (_, tells_ends, waits, is_message, counts), _, _ = _calls.pop(get_ident())
            work = told.work
            if is_message:
                pass
            elif counts:
                self._count += 1
                _core.trace_collective_numbered(ticket, self._count)
            elif work is not None:
                _core.trace_collective_numbered(ticket, work._get_sequence_number())
            else:
                group: Any = self._group()
                _core.trace_collective_numbered(ticket, group._get_sequence_number_for_group())
            if not tells_ends or (waits and not is_message and told.async_op):
                _core.trace_collective_issued(ticket)
            elif work is None:
                _core.trace_collective_closed(ticket, False)
            elif len(_open) >= _MOST:  # a back end whose Works never say that they have ended
                _core.trace_collective_issued(ticket)
            elif ticket:
                _open[ticket] = [work, waits, 0]
                if _idle:  # the thread has found nothing meanwhile
                    _rouse()
        except Exception:  # as above; KeyError: it began unseen
            return

    def _know(self, key: tuple[int, int, int, bool, Any, str]) -> _Known:
        """key: of torch's name, tensors that go in and out, no partner, their type and device."""
        op_name, sent, got, no_partner, dtype, device = key
        op, role, side, one, several = self._kinds[op_name]
        if one and sent == got and self._size > 1:
            op = one if sent == 1 else several
        elif op == "allreduce_" and sent > 1:
            op = "allreduce_coalesced_"
        elif op == "recv_" and no_partner:
            op = "recv_any_source_"
        group: Any = self._group()
        of = device or self._torch.distributed.distributed_c10d._get_object_coll_device(group)
        backend = group._get_backend(self._torch.device(of))
        name, ranks = backend.name(), []
        with suppress(RuntimeError, AttributeError):  # a back end without options
            ranks = backend.options.global_ranks_in_group
        facts = (group.group_name, name, group.group_desc, ranks, group.size(), group.rank())
        calls = _native.core().TraceCalls(facts, op, role, side, str(dtype or "")[6:])
        ends, counts = of == "cpu" or name == "gloo", name in ("gloo", "ucc")
        known = _Known(calls.begin, ends, op in _WAITS, op in _MESSAGES, counts)
        return self._known.setdefault(key, known)


def _look(closely: bool = False) -> None:
    """Closes calls that have ended. closely: also calls that only a wait ends, once unheld."""
    for ticket, one in [*_open.items()]:
        try:  # in each call: suppress() takes longer
            if one[0].is_completed():
                failed = not one[1] and _has_failed(one[0])
            elif closely and one[1] and sys.getrefcount(one[0]) <= 2:  # our list, the argument
                one[2] += 1
                if one[2] < 2:  # the first time torch may be about to return it
                    continue
                failed = False
            else:
                continue
            if _open.pop(ticket, None):
                _core.trace_collective_closed(ticket, failed)
        except Exception:  # a back end that cannot say it
            continue


def _has_failed(work: Any) -> bool:
    """Returns whether its future holds an error. Some back ends' Works have no future."""
    try:
        future = work.get_future()
    except Exception:
        return False
    try:
        future.value()
    except Exception:
        return True
    return False


def _look_for_raised() -> None:
    """Closes calls that have no second hook and whose thread has left them."""
    calls = list(_calls.items())  # before the frames: a call that begins now is not judged by them
    frames = sys._current_frames() if calls else {}
    for thread, call in calls:
        frame = frames.get(thread)
        while frame is not None and (id(frame), frame.f_lasti) != call[2:]:
            frame = frame.f_back
        if frame is None and call[3] >= 0 and _calls.get(thread) is call:
            _calls.pop(thread, None)
            _core.trace_collective_closed(call[0], True)


def _watch() -> None:
    global _idle
    pause, newest = _SHORTEST, 0
    while not _over:
        _wake.acquire(blocking=False)
        _idle = True  # before the check: a call that begins now wakes us
        if not (_open or _calls):
            _wake.acquire()
        time.sleep(pause)
        with suppress(Exception):  # nothing may end this thread
            _look(closely=True)
            _look_for_raised()
        last = next(reversed(_open), 0)
        pause = min(pause * _GROWTH, _LONGEST) if last == newest else _SHORTEST
        newest = last
    _stopped.set()


def _release() -> None:
    if _wake.locked():
        with suppress(RuntimeError):  # another thread was faster
            _wake.release()


def _rouse() -> None:
    global _idle, _watches
    _idle = False
    _release()
    if not _watches:
        _watches = True
        start_new_thread(_watch, ())


def _forget() -> None:
    """In a forked child: the calls are its parent's, and the thread runs only there."""
    global _idle, _wake, _watches
    _calls.clear()
    _open.clear()
    _wake, _idle, _watches = allocate_lock(), True, False


def _end() -> None:
    """Ends the thread and the hooks: when Python is gone, their groups could not release them."""
    global _over
    _over = True
    if _watches:
        _release()
        _stopped.wait(1)
        _look()
    for group in list(sys.modules["torch.distributed.distributed_c10d"]._world.pg_map):
        with suppress(Exception):
            group.unregister_pre_hook(_HOOK)
            group.unregister_post_hook(_HOOK)


def start() -> None:
    """Records the collectives of all groups, also of later ones, while this process is armed."""
    global _core
    _core = _native.core()
    _core.trace_collective_sink()  # notes in the record that it has them from now on
    _install()


@functools.cache
def _install() -> None:
    torch = sys.modules["torch"]
    c10d: Any = sys.modules["torch.distributed.distributed_c10d"]
    register = c10d._register_process_group

    def hook(group: Any) -> None:
        with suppress(Exception):  # a group without hooks
            _Hooks(group, torch)

    def register_hooked(name: str, group: Any) -> None:
        register(name, group)
        hook(group)

    c10d._register_process_group = register_hooked
    for group in list(c10d._world.pg_map):
        hook(group)
    atexit.register(_end)
    os.register_at_fork(after_in_child=_forget)
