"""Last words of processes in logs: Python tracebacks, C++ exceptions, signals, CUDA's errors."""

import itertools
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from oddrank import _native
from oddrank.errors import OddrankError
from oddrank.inputs import Item, Notes
from oddrank.triage import timeline
from oddrank.triage.evidence import Kind, lines, log_lines, signal_number
from oddrank.triage.evidence.log_lines import FINISHED, NO_PROGRESS, PROGRESS, Line, Log
from oddrank.triage.facts import Child, Death, Fact, Frame, Process, Source, Stop, Trouble
from oddrank.triage.words import count

_START = "Traceback (most recent call last)"
_FILE_LINE = re.compile(r'^\W*File "([^"]+)", line (\d+)(?:, in (.+))?')
# The same behind a prefix that is in no table.
_ANY_FILE_LINE = re.compile(r'\s(?=File "[^"]+", line \d+)')
# An exception is a name, perhaps dotted, and a message, at less than the indent of its frames.
_RAISED = re.compile(
    r"(?!(?:Killed|Terminated|Aborted|File)$)"
    r"(?:[a-z_]\w*\.)*(?![A-Z\d]+:)[A-Za-z_]*[A-Z]\w*(?:: .*|:?$)"
    r"|(?:\w+\.)+\w+: "
)
# Where a line of another process may stand between: only names that leave no doubt.
_SURELY_RAISED = re.compile(
    r"(?:\w+\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Group|Iteration|Timeout|Warning"
    r"|Died|Failure|Fault|Empty|Full)\w*(?:: .+|$)"
)
_OF_RAY = re.compile(r"\bray::\S+ \(pid=(\d+), ip=([\w.:-]+)")  # in which process it was raised
# A rank's, as torch writes it.
_ERRORS = lines.words("Error: ")
_BARE = re.compile(r"(?:\[rank(\d{1,7})\]: ?|^)((?:\w+\.)*[A-Z]\w*Error: .*)")
# Lines above one without a prefix, which show that it ends a traceback, and below: NCCL's reason.
_ABOVE, _BELOW = 60, 4
_FRONT = re.compile(r"\([^)]{0,80}\)|\[[^\]]{0,80}\]")
_BEHIND = re.compile(r"(?:[\])]:?|^[\d:TZ.,+ -]{8,40}) (?=[A-Za-z])")
_DECORATION = " \t|+-"
_LONGEST = 4096
_INNERMOST = 60  # lines behind a traceback's head that are read once more
_RICH_LINE = re.compile(r"^│ (\S+\.py):(\d+) in (\S+)")
# Tracebacks with these are the launcher's own: it reports what became of a rank.
_LAUNCHERS_WORDS = ("ChildFailedError", "SignalException", "Horovod detected that",
                    "ProcessExitedException")  # fmt: skip
# torch.multiprocessing.spawn's exception in the parent names the process by its index.
_SPAWNER = "torch/multiprocessing/spawn.py"
_SPAWNED = re.compile(
    r"-- Process (\d+) terminated with the following error"
    r"|(?:\bprocess (\d+) terminated with (?:signal|exit code)"
    r"|CalledProcessError: Command '\['(?!deepspeed).* (?:non-zero exit status|died with)) "
    r"(?:<Signals\.)?(?:(SIG\w+)|(\d+))"
)
_BEGINS = re.compile(r": .+:$")  # a message whose first line only begins it
# Handlers of absl and glog, in JAX and in Ray's workers; of Lightning, DeepSpeed and Megatron.
_HANDLED = re.compile(
    r"\*\*\* (SIG[A-Z]+) .*?received (?:by PID (\d+)|at time)"
    r"|\b[Rr]ecei(?:ved|ving) (SIGTERM|SIGINT)\b"
)
_OF_STORE = re.compile(rf"DistNetworkError|already in use|{timeline.WAITED.pattern}")
_GOT_SIGNAL = re.compile(r"got signal: (\d+)")
# Lines of a process that goes on. Bars are drawn once more when a process ends, and wandb sums up.
_PROGRESS_WORDS = ("step", "Step", "iter", "Iter", "poch", "loss", "Loss", "inished", "omplete")
# Without prefixes, other ranks' lines may come late: by their times only so much later proves it.
_LATER = 60.0
# So many lines around a traceback, and at the end of a log, are searched for such lines first.
_WINDOW = 10_000
_GOES_ON = ("Exception ignored in", "Exception in thread")  # Python goes on after these
# How the C library, srun and Python begin what they say of a signal.
SIGNALS = {
    "Killed": 9, "Terminated": 15, "Aborted": 6, "Segmentation fault": 11, "Bus error": 7,
    "Floating": 8, "Illegal instruction": 4, "Interrupt": 2,
    "User defined signal": 10,
}  # fmt: skip
_SIGNAL_WORDS = ("Segmentation fault", "*** Process received signal", "*** SIG", "eceived SIG",
                 "receiving SIG", "SignalException: Process ")  # fmt: skip
# Last words of C++ exceptions and watchdogs, when they end their process.
_LAST_WORDS = re.compile(
    r".*(?:what\(\): |with exception:|async exception: )(.*)"
    r"|.*?(Aborting process on rank .*|Watchdog timeout \(.*|\S* watchdog got stuck for .*"
    r"|Terminating the process .* watchdog hang.*)"
)
# Its rank: of a group, unless that is the default one.
_OF_WATCHDOG = re.compile(r"\[PG (?:ID )?(\d+)[^\]]*Rank (\d+)\]|\[Rank (\d+)\]")
# Last words of libraries when they end their process: of C++, glibc, ROCm, JAX.
_ABORTS = (
    "terminate called after throwing", "double free or corruption", "corrupted size vs. prev_size",
    "malloc(): ", "free(): invalid", "Memory access fault by GPU", "HW Exception by GPU",
    "aborting with error : HSA", "Terminating process because the JAX",
)  # fmt: skip
# Where a C++ exception was raised, so many lines behind its text at most, as c10 writes it.
_RAISED_FROM = re.compile(r"Exception raised from (.+) at (\S+):(\d+)")
_NEAR = 10
_OF_RANK = re.compile(r" last\): \(RANK (\d{1,7})\)")  # all ranks show the error of this one
# So many exceptions of a log are read once more: the others say the same.
_MOST_SITES = 32
_WORKERS = re.compile(r"DataLoader worker \(pid(?:\(s\))? (\d[\d, ]{0,200})\)")
_NUMBER = re.compile(r"\((\d+)\)")
# Lines behind an exception that say why it was raised, or where.
_REASONS = frozenset({"EI0002", "EI0006", "hccl fftsplus t", "Duplicate GPU detected",
                      "TPU session error", "!!!! FATAL ERROR",
                      "Exception raised from "})  # fmt: skip
# Text of an error -> kind of trouble. Errors of the process's own GPU first: no code causes them.
_OF_GPU = ("ecc", "nvlink", "gpu")
_TROUBLES = (
    (re.compile("uncorrectable ECC error"), "ecc"),
    (re.compile("NVLink error"), "nvlink"),
    (re.compile("an unrecoverable|GPU is lost|fallen off the bus"), "gpu"),
    (re.compile(r"Got completion (?:from peer (\S+) )?with (?:status=|error )(\d+)"), "network"),
    (re.compile(r"Got async event : (.+)"), "network"),
    (re.compile(r"[Ee]rror while creating shared memory segment"), "shm"),
    (re.compile(r"No space left on device"), "shm"),
    (re.compile(r"Duplicate GPU detected"), "setting"),
    (re.compile(r"TPU session error from worker (?P<host>[\w-]+)|!!!! FATAL ERROR !!!!"), "node"),
)


@dataclass
class _Block:
    """A traceback that is being read, of one writer."""

    process: Process
    source: Source
    number: int
    lines: list[str] = field(default_factory=list)
    text: str = ""
    time: float | None = None
    goes_on: bool = False
    original: bool = False
    """It is part of the message before: what a worker raised, which its rank raises again."""
    end: int = 0
    """The line of its exception."""

    @property
    def launcher(self) -> bool:
        """Whether it is the launcher's own, which reports what became of a rank."""
        site, text = parse(self.lines)
        spawns = site and _SPAWNER in site[0].file and site[0].function == "join"
        return bool(
            spawns
            or any(word in (self.text or text) for word in _LAUNCHERS_WORDS)
            or any(part in frame.file for frame in site for part in log_lines.LAUNCHERS)
        )


def parse(lines: Sequence[str]) -> tuple[tuple[Frame, ...], str]:
    """Returns the frames of a traceback's lines, innermost first, and its exception."""
    frames: list[Frame] = []
    text, indent = "", 0
    for line in lines:
        bare = line.lstrip(_DECORATION)
        if found := _FILE_LINE.match(line):
            frames.append(Frame((found[3] or "").strip(), found[1], int(found[2])))
            indent = len(line) - len(bare)
        elif found := _RICH_LINE.match(line):
            frames.append(Frame(found[3], found[1], int(found[2])))
        elif len(line) - len(bare) <= indent and _RAISED.match(bare):
            text = bare.strip()
    return tuple(reversed(frames)), text


def _again(log: Log, block: "_Block") -> None:
    """Reads a traceback once more whose exception other processes' lines tore off.

    Lines of its process begin as its first one does: with a pid or a rank in brackets, if at all.
    """
    wanted = range(block.number, block.number + _INNERMOST)
    raw = [text[:_LONGEST] for _, text in lines.lines(log.item, wanted)]
    front = _FRONT.match(raw[0]) if raw else None
    own = [text for text in raw[1:] if front is None or text.startswith(front[0])]
    frames: list[str] = []
    for text in own:
        if found := _OF_RAY.search(text):
            block.process = replace(block.process, pid=int(found[1]), host=found[2])
        if found := _ANY_FILE_LINE.search(text):
            frames.append(text[found.start() :])
            continue
        behind = (text[at:] for at in (0, *(each.end() for each in _BEHIND.finditer(text))))
        if raised := next((words for words in behind if _SURELY_RAISED.match(words)), ""):
            block.text, block.lines = raised.strip(), frames
            return


def _below(log: Log, block: "_Block") -> None:
    """Adds the next line of a message, if it is surely of the same process."""
    near = dict(lines.lines(log.item, (block.end, block.end + 1)))
    front, found, _ = near.get(block.end, "").partition(block.text)
    said = (below := near.get(block.end + 1, "")).removeprefix(front)
    if found and (below != said or said[:1].isspace() or _SURELY_RAISED.match(said)):
        block.text += f" {said.strip()}".rstrip()


def _bare(item: Item, but: Callable[[int], bool] = lambda number: False) -> Iterator[_Block]:
    """Yields each rank's first line that may end a traceback whose head is in no line.

    A line without a prefix may, if frames stand above it, or if torch tells of a worker's end.
    but: excludes lines by their number.
    """
    numbers = (number for number, _ in lines.numbers(item, _ERRORS) or () if not but(number))
    of: dict[str | None, dict[int, re.Match[str]]] = defaultdict(dict)
    for number, text in lines.lines(item, numbers):
        found = _BARE.search(text)
        if found and len(of[found[1]]) < (1 if found[1] else _MOST_SITES):
            of[found[1]][number] = found
    every = {number: found for some in of.values() for number, found in some.items()}
    near = dict(
        lines.lines(item, {at for n in every for at in range(max(n - _ABOVE, 1), n + _BELOW)})
    )
    for number, found in sorted(every.items()):
        above = (near.get(at, "") for at in range(number - 1, number - _ABOVE, -1))
        frames = [*itertools.takewhile(lambda text: text[:1].isspace(), above)][::-1]
        below = [near.get(at, "") for at in range(number + 1, number + _BELOW)]
        heads = (at for at, text in enumerate(below[:-1], 1) if "Last error:" in text)
        why = below[at][found.start(2) :] if (at := next(heads, 0)) else ""
        if found[1] or parse(frames)[0] or _WORKERS.search(found[2]):
            yield _Block(
                Process(int(found[1]) if found[1] else None), Source(item.name, number), number,
                frames, found[2] + (f" ({why})" if why else ""), end=number,
            )  # fmt: skip


def _read(items: Sequence[Item], notes: Notes) -> Iterable[Fact]:
    for log in log_lines.read(items, notes):
        yield from log_lines.identities(log)
        for fact in log_lines.clocked([log], _Words(log).facts()):
            yield fact
            # The workers whose end an exception of their process tells of.
            if not isinstance(fact, Death):
                continue
            for found in _WORKERS.finditer(fact.text):
                for pid in found[1].replace(",", " ").split():
                    worker = Process(None, fact.process.host, int(pid))
                    yield Child(worker, fact.process, fact.source, "DataLoader worker")


class _Words:
    """Reads one log's lines. A process may say several last words: an exception, then a signal."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._open: dict[object, _Block] = {}
        self._done: dict[object, list[_Block]] = {}
        self._goes_on: dict[object, int] = {}
        self._deaths: dict[tuple[object, Process], Death] = {}
        self._troubles: dict[tuple[object, str, str], Trouble] = {}
        self._ended: set[object] = set()  # writers of which a launcher has ended
        self._told: list[Fact] = []  # by launchers
        self._spawned: dict[object, str] = {}  # writer -> the process of which it tells next

    def facts(self) -> Iterator[Fact]:
        for line in self._log.lines:
            self._add(line)
        for writer in list(self._open):
            self._close(writer)
        every = [block for blocks in self._done.values() for block in blocks]
        for block in [b for b in every if _BEGINS.search(b.text)][:_MOST_SITES]:
            _below(self._log, block)
        torn = [block for block in every if not block.text]
        for block in torn[:_MOST_SITES]:
            if not parse(block.lines)[1]:
                _again(self._log, block)
        self._add_bare()
        yield from self._told
        went_on = _went_on(self._log, self._done)
        for blocks in self._done.values():
            yield from _deaths(blocks, went_on)
        told = [d for d in self._deaths.values() if not d.text.startswith("terminate called")]
        yield from told or self._deaths.values()
        yield from self._troubles.values()

    def _add_bare(self) -> None:
        """Adds the exceptions of processes whose tracebacks are in no line that was given."""
        log, known = self._log, {death.process.rank for death in self._deaths.values()}
        known |= {block.process.rank for blocks in self._done.values() for block in blocks}
        texts = {block.text for blocks in self._done.values() for block in blocks}
        own = log_lines.writers(log.item)
        read = frozenset(line.number for line in log.lines if line.follows)
        for block in _bare(log.item, lambda number: number in read or number <= log.restarted):
            rank = block.process.rank
            if rank is None and own:
                block.process = own.process((None,) * 7)
            if block.launcher:
                self._tell(block, alone=not self._done)
            elif block.text not in texts if rank is None else rank not in known:
                key = (rank, None, None, None, None, None, None)
                self._done.setdefault(key, []).append(block)

    def _add(self, line: Line) -> None:
        block = self._open.get(line.writer)
        if line.word == _START and not line.follows:
            if block is not None:
                self._close(line.writer)
            began = self._goes_on.get(line.writer, -10)
            process = line.process
            if label := self._spawned.pop(line.writer, ""):
                process = Process(None, process.host, label=label)
            process = Process(int(of[1])) if (of := _OF_RANK.search(line.text)) else process
            self._open[line.writer] = _Block(
                process, self._log.source(line), line.number, time=line.time,
                goes_on=line.number - began <= 3, original="Original Traceback" in line.text,
            )  # fmt: skip
            return
        if block is not None:
            if line.text[:1] in (" ", "\t", "│", "╭", "╰"):
                block.lines.append(line.text)
            elif found := _ANY_FILE_LINE.search(line.text):
                block.lines.append(line.text[found.start() :])
            elif line.text.strip():
                raised = _RAISED.match(line.text)
                block.text, block.end = line.text.strip() if raised else "", line.number
                self._close(line.writer)
            if line.follows:
                return
        self._word(line)

    def _word(self, line: Line) -> None:
        """Reads a line that is telling by itself."""
        source = self._log.source(line)
        text = line.text.strip()
        if line.word == "-- Process ":
            if (found := _SPAWNED.search(text)) and found[1]:
                self._spawned[line.writer] = _of_spawn(found[1])
        elif line.word in _GOES_ON:
            self._goes_on[line.writer] = line.number
        elif line.word == "Fatal Python error:":
            about = text.partition("Fatal Python error:")[2].strip()
            number = next((n for word, n in SIGNALS.items() if about.startswith(word)), None)
            self._died(line, Death(line.process, "signal" if number else "abort", source, line.time,
                                   signal=number, text=about, among=number == 6))  # fmt: skip
        elif line.word in _ABORTS and "what(): " not in text:
            self._died(line, Death(line.process, "abort", source, line.time, signal=6, text=text))
        elif said := _LAST_WORDS.match(text):
            self._what(line, (said[1] or said[2] or text).strip(), source)
        elif (found := _SPAWNED.search(text)) and found[2]:
            self._told.append(_of_spawned(found, line.process, source, line.time))
        elif line.word in ("CUDA error: ", "CUDA_ERROR_ECC", "CUDA_ERROR_NVLINK"):
            self._faults(line, text, source, line.process)
        elif line.word == "NCCL WARN":
            self._faults(line, text, source)
        elif line.word in _REASONS or (line.word == "Last error:" and line.follows):
            self._last_error(line, text)
            self._faults(line, text, source)
        elif line.word in _SIGNAL_WORDS:
            self._signal(line, text, source)

    def _signal(self, line: Line, text: str, source: Source) -> None:
        if stopped := _GOT_SIGNAL.search(text):
            self._told.append(Stop("torchrun", source, line.time, int(stopped[1])))
            return
        found = _HANDLED.search(text)
        process = replace(line.process, pid=int(found[2])) if found and found[2] else line.process
        told = _NUMBER.search(text) if "Signal:" in text else None
        number = signal_number(found[1] or found[3]) if found else int(told[1]) if told else 11
        if found and number in (2, 15):
            who = count([process]) if process.key else "a process"
            who = "DeepSpeed's launcher" if "Main process" in text else who
            self._told.append(Stop(who, source, line.time, number))
        elif found or told or (line.word == "Segmentation fault" and not line.follows):
            self._died(line, Death(process, "signal", source, line.time, signal=number))

    def _died(self, line: Line, death: Death) -> None:
        if line.writer in self._ended:
            return
        writer = line.writer, death.process
        if death.process != line.process:  # its words name the process
            self._deaths.pop((line.writer, line.process), None)
        old = self._deaths.get(writer)
        if old is None:
            self._deaths[writer] = death
        elif not old.text or old.text.startswith("terminate called"):
            self._deaths[writer] = replace(old, text=death.text or old.text, by=death.by)

    def _what(self, line: Line, text: str, source: Source) -> None:
        """Reads last words. A watchdog's words name its rank, which mostly waited."""
        process, of = line.process, _OF_WATCHDOG.search(line.text)
        if of and (of[1] == "0" or (of[3] and process.rank is None)):
            process = replace(process, rank=int(of[2] or of[3]))
        waited = timeline.WAITED.search(text or line.text)
        self._died(line, Death(process, "abort", source, line.time, signal=6, text=text,
                               by="watchdog" if waited else ""))  # fmt: skip
        self._faults(line, text, source, process)

    def _faults(
        self, line: Line, text: str, source: Source, process: Process | None = None
    ) -> None:
        """Counts a fault of hardware or of the system. process: of whose GPU the line may tell."""
        every = ((found, kind) for pattern, kind in _TROUBLES if (found := pattern.search(text)))
        if (first := next(every, None)) is None:
            return
        found, kind = first
        code = found[2] if found.lastindex == 2 else ""
        rank = process.rank if process and kind in _OF_GPU else None
        hits = () if rank is None else (rank,)
        key = (line.writer, kind, code)
        if old := self._troubles.get(key):
            hits = tuple(sorted({*old.hits, *hits}))
            self._troubles[key] = replace(old, count=old.count + 1, hits=hits)
            return
        said = re.split("NCCL WARN|Last error:", text[found.start() if kind == "node" else 0 :])
        host = found.groupdict().get("host") or line.process.host
        self._troubles[key] = Trouble(
            kind, said[-1].strip()[:300], source, host, code=code, fatal=kind != "network",
            time=line.time, hits=hits,
        )  # fmt: skip

    def _last_error(self, line: Line, text: str) -> None:
        """NCCL's or HCCL's reason, or c10's place, follows an exception that does not say it."""
        if found := _RAISED_FROM.search(text):
            site = (Frame(found[1], found[2], int(found[3])),)
            for key, death in self._deaths.items():
                behind = line.number - (death.source.line or 0)
                if key[0] == line.writer and not death.site and behind < _NEAR:
                    self._deaths[key] = replace(death, site=site)
            return
        blocks = self._done.get(line.writer)
        for key, death in self._deaths.items() if text and not blocks else ():
            near = key[0] == line.writer or line.writer == (None,) * len(line.writer)
            if near and line.number - (death.source.line or 0) < _BELOW:
                self._deaths[key] = replace(death, text=f"{death.text} ({text})")
        if blocks and text and line.number - blocks[-1].number < 1000:
            blocks[-1].text += f" ({text})"

    def _close(self, writer: object) -> None:
        block = self._open.pop(writer)
        if block.original:
            for outer in self._done.get(writer, [])[-1:]:
                where = outer.text.partition(" in ")[2].rstrip(".")
                outer.text = f"{block.text} (in {where})" if where else block.text
                outer.lines += block.lines
                outer.end = block.end
        if block.goes_on or block.original:
            return
        self._done.setdefault(writer, []).append(block)
        if block.launcher:
            self._ended.add(writer)  # what dies there afterwards is the launcher itself
            self._tell(block, alone=self._done[writer] == [block])

    def _tell(self, block: _Block, *, alone: bool) -> None:
        """Reads what a launcher's own exception says of its processes."""
        if found := _GOT_SIGNAL.search(block.text):
            self._told.append(Stop("torchrun", block.source, block.time, int(found[1])))
        elif alone and _OF_STORE.search(block.text):  # the launcher met no other, or had no port
            self._told += [Death(block.process, "exception", block.source, text=block.text)]
        found = _SPAWNED.search(block.text)
        if found and (found[2] or (not found[1] and alone)):
            self._told.append(_of_spawned(found, block.process, block.source, block.time))


def _of_spawned(
    found: re.Match[str], process: Process, source: Source, time: float | None
) -> Death:
    """Returns the end of a process that its parent tells of."""
    number = signal_number(found[3]) if found[3] else None
    return Death(Process(None, process.host, label=_of_spawn(found[2] or "")),
                 "signal" if found[3] else "exit", source, time,
                 signal=number, code=int(found[4]) if found[4] else None)  # fmt: skip


def _of_spawn(index: str) -> str:
    return f"process {int(index[:9])} of mp.spawn" if index else ""


def _went_on(log: Log, done: dict[object, list[_Block]]) -> set[int]:
    """Returns the lines of tracebacks after which the same process goes on: steps, or the end.

    Output is buffered: text from before an exception may come after its traceback. So the judges
    believe a source that says that the process ended.
    """
    left = [
        (writer, block)
        for writer, blocks in done.items() for block in blocks if block.end and not block.launcher
    ]  # fmt: skip
    told = [log.count, *(at for _, block in left for at in (block.number, block.end))]
    windows = {at // _WINDOW + beside for at in told for beside in (-1, 0, 1)}
    near = [(n * _WINDOW, (n + 1) * _WINDOW - 1) for n in sorted(windows) if n >= 0]
    went_on: set[int] = set()
    # Where nothing near it says so, all behind it counts.
    for ranges in (near, [(max(min(told) - _WINDOW, 1), log.count)]):
        said = _progress(log, ranges, left) if left else {}
        for writer, block in left:
            if writer not in said and block.process.rank is not None:  # without a pod or a pid
                of = (m for own in said.values() for m in own if m[3][0] == block.process.rank)
                said[writer] = sorted(of)
            if _goes_on(block, said[writer]):
                went_on.add(block.number)
        left = [
            (writer, block) for writer, block in left
            if block.number not in went_on and block.end + _WINDOW < log.count
        ]  # fmt: skip
    return went_on


def _progress(
    log: Log, ranges: list[tuple[int, int]], of: Sequence[tuple[object, _Block]]
) -> dict[object, list[Any]]:
    """Returns for each writer its lines that tell of progress. of: whose are asked for."""
    said: dict[object, list[Any]] = defaultdict(list)
    own = {writer for writer, _ in of} | {block.process.rank for _, block in of} - {None}
    with suppress(OSError, OddrankError):
        for first, last in ranges:
            found = _native.core().scan_lines(
                os.fsencode(log.item.path), [(word, 0) for word in _PROGRESS_WORDS],
                speakers=False, ranges=[(first, last)], begin=lines.begin(log.item, first),
            )  # fmt: skip
            for match in found["matches"]:
                if own & {match[3], match[3][0]} and not NO_PROGRESS.search(match[2]):
                    said[match[3]].append(match)
    return said


def _goes_on(block: _Block, matches: Sequence[Any]) -> bool:
    later = [match for match in matches if block.end and match[0] > block.end]
    if any(FINISHED.search(match[2]) for match in later):
        return True
    if block.process == Process():
        before = [m[4][0] for m in matches if m[4] is not None and m[0] < block.number]
        start = before[-1] if before else None
        later = [
            m for m in later
            if start is not None and m[4] is not None and m[4][0] - start > _LATER * 1e9
        ]  # fmt: skip
        return any(PROGRESS.search(match[2]) for match in later)
    return len({step[1] for match in later if (step := PROGRESS.search(match[2]))}) > 1


def _deaths(blocks: Sequence[_Block], went_on: set[int]) -> Iterator[Death]:
    """Yields the deaths in one writer's tracebacks: for each process the death in its last one.

    Without prefixes all ranks are one writer: then each traceback may be another rank's.
    """
    told = []
    whole = [parse(block.lines)[0][::-1] for block in blocks if block.text]
    for block in blocks:
        site, text = parse(block.lines)
        text = block.text or text
        # One that was cut off says no more than one that stands in the same code.
        same = not text and any(each[: len(site)] == site[::-1] for each in whole)
        if block.launcher or same:
            continue
        if number := 2 if text == "KeyboardInterrupt" else 15 * ("SIGTERMException" in text):
            told.append(Death(block.process, "signal", block.source, block.time, signal=number,
                              site=site))  # fmt: skip
        elif text or site:
            told.append(Death(block.process, "exception", block.source, block.time, text=text,
                              site=site, went_on=block.number in went_on))  # fmt: skip
    if not told:
        return
    if told[-1].process == Process():
        first: dict[object, Death] = {}
        for death in told:
            first.setdefault((death.text, death.site), death)
        yield from first.values()
    else:
        # That a worker exited is raised from what tells by which signal.
        signals = (" is killed by signal: " in death.text for death in told)
        yield from {(d.process, known): d for d, known in zip(told, signals, strict=True)}.values()


KIND = Kind(
    "tracebacks",
    binary=False,
    sniff=lambda item: log_lines.has(item, "tracebacks", "watchdog") or any(_bare(item)),
    read=_read,
)
