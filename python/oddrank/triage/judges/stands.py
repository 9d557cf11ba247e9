"""Says where each process stands: the thread of it that counts, its stack and what that means."""

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TypeAlias

from oddrank.triage import leaves
from oddrank.triage import model_frames as kinds
from oddrank.triage.facts import Child, Frame, Process, Stack, Thread
from oddrank.triage.leaves import Leaf

Frames: TypeAlias = tuple[Frame, ...]
# With several threads in a process, the class that says most about it.
ORDER = (
    kinds.PEERS, kinds.DATA, kinds.DISK, kinds.NETWORK, kinds.FILE_LOCK, kinds.PIPE, kinds.CHILD,
    kinds.LOCK, kinds.GPU, kinds.THREADS, kinds.MAYBE, kinds.LEAVING, kinds.RUNNING, "",
)  # fmt: skip


@dataclass(frozen=True)
class Stand:
    """Where a process stands: the thread that counts, its stack and what that means."""

    process: Process
    thread: Thread
    frames: Frames
    leaf: Leaf
    kind: str
    gil: bool = False
    """A thread holds the GIL outside of collectives while others of the process wait for it."""
    frozen: bool = False
    """It stood there in an earlier look, too; or its own timer made the dump."""
    moved: bool = False
    """It stood elsewhere in the look before."""
    exact: bool = False
    """It stood at the same line in the look before."""
    locked: tuple[Frame, ...] = ()
    """Where others of its threads wait for locks, if it waits for one itself."""

    @property
    def site(self) -> Frames:
        """The user's frames from the call on, innermost first."""
        if self.kind not in (kinds.PEERS, kinds.LEAVING):
            return self.frames[self.leaf.cut :]
        outer = self.frames[self.leaf.cut + 1 :]
        while outer and (outer[0].native or leaves.kind_of(outer[0]) == kinds.THROUGH):
            outer = outer[1:]
        return outer

    @property
    def place(self) -> tuple[str, str, str, int | None]:
        """Equal for two processes that stand at one place."""
        frame = self.site[0] if self.kind == kinds.PEERS and self.site else self.leaf.frame
        if frame is None:
            return (self.kind, self.leaf.op, "", None)
        # Tools shorten paths in different ways.
        file = frame.file.rpartition("/")[2]
        return (self.kind, self.leaf.op, f"{file} {leaves.bare(frame)}", frame.line)

    @property
    def told(self) -> str:
        """The activity as sentences give it: by its frames, or by the kernel, never by a name."""
        works = self.kind == kinds.THREADS and self.thread.state.startswith(("active", "running"))
        vague = self.kind in (kinds.LEAVING, kinds.MAYBE) or self.leaf.by_name or works
        told = "" if vague else self.kind
        if told == kinds.LOCK:
            outside = takewhile(lambda f: not leaves.is_own(f), self.frames)
            called = [f"{frame.file}:{leaves.bare(frame)}" for frame in outside]
            told = next((
                kind for kind, place in kinds.NO_LOCKS if any(re.search(place, c) for c in called)
            ), told)  # fmt: skip
        if told in ("", kinds.LOCK):  # a library's wait, or one without a known reason
            told = leaves.kernel_class(self.thread.state) or told
        return told

    @property
    def takes_lock(self) -> bool:
        """Whether its own code waits for a lock, and no library in it for work."""
        return self.told == kinds.LOCK and leaves.is_own(self.frames[0])

    @property
    def rests(self) -> bool:
        """Whether nothing says that its thread runs. Not all tools say it."""
        return not self.thread.state.startswith("active")


def stands(
    stacks: Sequence[Stack], children: Mapping[Process, Child] | None = None
) -> tuple[list[Stand], list[tuple[str, Stand]]]:
    """Returns where each rank stands, and where other processes stand, with their kinds.

    children: of known processes. Children of a launcher are ranks.
    """
    # Two tools that saw a process give two looks: they did not look at once.
    looks: dict[Process, dict[tuple[int, str], list[tuple[Thread, Frames]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for stack in stacks:
        for thread in stack.threads:
            look = (thread.look, thread.source.file)
            looks[thread.process][look].append((thread, stack.frames))
    found: list[Stand] = []
    helpers: list[tuple[str, Stand]] = []
    launchers = {
        t.process for s in stacks if leaves.no_rank(s.frames) == "launcher" for t in s.threads
    }
    order = sorted(
        looks,
        key=lambda p: (math.inf if p.rank is None else p.rank, p.host or "", p.pid or 0, p.label),
    )
    for process in order:
        dumps = [looks[process][look] for look in sorted(looks[process])]
        told = [(d, s) for d in dumps if (s := _stand(process, d))]
        if any(_has_python(s.frames) for _, s in told):  # a dump of C alone says less
            told = [(d, s) for d, s in told if _has_python(s.frames)]
        if not told:
            continue
        dump, last = told[-1]
        what = next((w for _, frames in dump if (w := leaves.no_rank(frames))), "")
        parent = children[process].parent if children and process in children else None
        if not what and parent in looks and parent not in launchers:
            what = "child process"
        if what:
            helpers.append((what, last))
            continue
        before = told[-2][1] if len(told) > 1 else None
        same = before is not None and (
            before.place[1:3] == last.place[1:3] or _is_part(before, last) or _is_part(last, before)
        )
        found.append(replace(
            last, frozen=same or last.thread.timed_out, moved=before is not None and not same,
            exact=before is not None and before.place[1:] == last.place[1:],
        ))  # fmt: skip
    return found, helpers


def _is_part(one: Stand, other: Stand) -> bool:
    """Returns whether one stack is the outer part of another: recorders leave out some frames."""

    def place(frame: Frame) -> tuple[str, str, int | None]:
        return leaves.bare(frame), frame.file.rpartition("/")[2], frame.line

    leaf = one.frames[0]
    return leaf.line is not None and place(leaf) in map(place, other.frames)


def _has_python(frames: Frames) -> bool:
    return any(not frame.native for frame in frames)


def _stand(process: Process, dump: Sequence[tuple[Thread, Frames]]) -> Stand | None:
    """Chooses the thread of a process that counts; None if all its threads are helpers."""
    main = _main(process, dump)
    told = [
        of_thread(process, thread, frames) for thread, frames in dump
        if frames and (thread is main or not leaves.is_helper(thread.name, frames))
    ]  # fmt: skip
    if not told:
        return None
    first = next((s for s in told if s.thread is main), None)
    others = sorted((s for s in told if s is not first), key=lambda s: ORDER.index(s.kind))
    chosen = first or others[0]
    # The main thread waits for a thread of its own: for the autograd's, mostly.
    if first is not None and first.kind in (kinds.THREADS, kinds.LOCK):
        waits = first.kind == kinds.THREADS
        chosen = next((
            s for s in others if s.kind == kinds.PEERS
            or (waits and (s.kind != kinds.LOCK or leaves.is_own(s.frames[0])))
        ), first)  # fmt: skip
    holder = next((s for s in told if s.thread.gil), None)
    wanting = any(
        thread.state == "waits for the GIL" or leaves.wants_gil(frames) for thread, frames in dump
    )
    # Holding it while asleep is enough: no other thread can run.
    asleep = holder is not None and holder.thread.state.startswith("idle")
    if holder is not None and (wanting or asleep) and holder.kind != kinds.PEERS:
        return replace(holder, gil=True)
    if chosen.takes_lock:
        locked = tuple(s.frames[0] for s in told if s is not chosen and s.takes_lock)
        return replace(chosen, locked=locked)
    return chosen


def of_thread(process: Process, thread: Thread, frames: Frames) -> Stand:
    """Returns where one thread stands."""
    leaf = leaves.leaf(frames)
    kind = leaf.kind
    kernel = leaves.kernel_class(thread.state)
    if not kind and kernel in (kinds.FILE_LOCK, kinds.PIPE, kinds.CHILD):  # peers: in none of these
        kind = kernel
    elif not kind and thread.gil and "idle" not in thread.state:
        kind = kinds.RUNNING
    elif (not kind and (frame := leaf.frame) and not frame.native
          and leaves.MAY_WAIT.fullmatch(leaves.bare(frame))):  # fmt: skip
        kind = kinds.MAYBE
    return Stand(process, thread, frames, leaf, kind)


def _main(process: Process, dump: Sequence[tuple[Thread, Frames]]) -> Thread | None:
    def is_main(thread: Thread) -> bool:
        return thread.name == "MainThread" or (thread.id or 0) == (process.pid or -1)

    # The main one may only wait for the one that trains.
    known = [thread for thread, _ in dump if thread.trains or is_main(thread)]
    if known:
        return max(known, key=lambda thread: (thread.trains, is_main(thread)))
    for thread, frames in dump:
        # Behind the end of the program, only the main thread goes on.
        if frames and (
            frames[-1].function in ("<module>", "_start", "main")
            or frames[-1].function.startswith("__libc_start_")
            or leaves.kind_of(frames[-1]) == kinds.LEAVING
        ):
            return thread
    return dump[0][0] if len(dump) == 1 else None
