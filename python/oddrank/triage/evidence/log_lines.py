"""The telling lines of logs, each with its writer and time: what all readers of logs share.

A log is scanned once, for the words of all readers together (WORDS).
"""

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any

from oddrank.inputs import Item, Notes, unix_time
from oddrank.inputs.files import is_text
from oddrank.triage import facts
from oddrank.triage.evidence import rank_in_name
from oddrank.triage.evidence.lines import Scan, lines, scan, words_of_logs


def _alone(words: str) -> tuple[tuple[str, int], ...]:
    """Returns words between bars, with which no other lines come."""
    return tuple((word, 0) for word in words.split("|"))


# Reader -> words of its lines, and how many lines of the same writer come with each (see
# csrc/logs/scanner.hpp). A line with several words belongs to the first.
WORDS: dict[str, tuple[tuple[str, int], ...]] = {
    "told": _alone(
        "oddrank: rank|oddrank: corrected: |oddrank: went on after|is saved: oddrank triage |"
        "oddrank: ends all ranks, as --on-stall"
    ),
    "watchdog": (
        *_alone(
            "Watchdog caught collective operation timeout|detected by watchdog|"
            "watchdog thread terminated with exception|watchdog got stuck for|watchdog hang|"
            "Watchdog timeout (|Timeout at |dump signal|[TC][rank=|"
            "Heartbeat monitor timed out|Could not acquire GIL|"
            "Stack trace of the failed collective not found|Flight Recorder debug info to|"
            "monitoredBarrier| collective #"
        ),
        ("Detected mismatch between", 4),
    ),
    "launcher": (
        ("traceback :", 60),
        ("process rank", -2),
        ("RUNNING AT", -1),
        ("MPI_ABORT was invoked", -2),
        ("Process name: ", -1),
        *_alone(
            "failed (exitcode:|closing signal SIG|death signal, shutting down|"
            "forcefully exiting via|exitcode  :|error_file:|rank      :|host      :|time      :|"
            "will restart worker group|srun: error:|slurmstepd: error:|called MPI_Abort|"
            "died from signal|exited with code|Worker proc |"
            "died, exit code|Child process with PID|exits with return code|"
            "exit code 137| Killed       |running low on memory|Worker unexpectedly exits|"
            "Worker exits unexpectedly|node has died|node has crashed|memory pressure (OOM)|"
            "Peer host:| Aborted       | Segmentation fault      |: job killed|walltime limit"
        ),
    ),
    "tracebacks": (
        ("Traceback (most recent call last)", 400),
        *_alone(
            "-- Process |Exception ignored in|Exception in thread|Fatal Python error:|"
            "terminate called after throwing|  what():  |CUDA error: |NCCL WARN|"
            "Segmentation fault|double free or corruption|corrupted size vs. prev_size|"
            "malloc(): |free(): invalid|Memory access fault by GPU|HW Exception by GPU|"
            "aborting with error : HSA|Terminating process because the JAX|*** SIG|EI0002|EI0006|"
            "hccl fftsplus t|Duplicate GPU detected|TPU session error|!!!! FATAL ERROR|"
            "terminated with signal|terminated with exit code|CUDA_ERROR_ECC|CUDA_ERROR_NVLINK|"
            "Unhandled exception: |SignalException: Process |following async exception: |"
            "Exception raised from |eceived SIG|receiving SIG"
        ),
        ("Last error:", -1),
        ("*** Process received signal", -2),
    ),
    "awaited": _alone(
        "issing ranks:|task names:|respond: rank|/task:|worker_count=|clients joined"
    ),
    "world": _alone("using world size:|MEMBER: 1/| COMPLETE|Starting with "),
}
_READERS = tuple((reader, word) for reader, words in WORDS.items() for word, _ in words)
words_of_logs(needle for words in WORDS.values() for needle in words)
_ELASTIC_FILE = re.compile(r"(.*/)?attempt_(\d+)/(\d+)/(?:stdout|stderr|error)\.(?:log|json)$")
_LOCAL_RANK = re.compile(r"local[_.=-]?rank[_.=-]{0,2}(\d{1,7})(?!\d)", re.IGNORECASE)
_SIZES = (
    re.compile(r"using world size: (\d+)"),
    re.compile(r"MEMBER: 1/(\d+)"),
    re.compile(r"Starting with (\d+) processes"),
    re.compile(r"\brank \d+ nranks (\d+)\b"),
)
_RANK_ROW = "rank      :"
_TABLE_RANK = re.compile(r"rank\s+: (\d+) \(local_rank: (\d+)\)")
# Frames of launchers. Their tracebacks tell nothing of the ranks.
LAUNCHERS = ("bin/torchrun", "bin/accelerate", "torch/distributed/run.py",
             "torch/distributed/launch", "accelerate/commands/", "deepspeed/launcher/",
             "torch/distributed/elastic/agent/")  # fmt: skip
# Lines of a process that goes on, and that has ended well.
PROGRESS = re.compile(
    r"(?<![a-z])(?:step|iter(?:ation)?|epoch|batch)(?![a-z])\W{0,12}(\d+)", re.IGNORECASE
)
FINISHED = re.compile(
    r"\btrain(?:ing|ed)?\b.{0,40}\b(?:finished|completed?|done)\b|\bfinished training\b"
    r"|`Trainer\.fit` stopped: `max_\w+=\d+` reached|'train_runtime': ?'?\d"
    r"|\bworker group successfully finished", re.IGNORECASE,
)  # fmt: skip
NO_PROGRESS = re.compile(  # a count or a rate of errors is no error
    r"(?i)%\||wandb: |(?<!\b0 )(?:fail|error|exception|abort|crash|emergency)(?!\w*'?[=:] ?'?\d)"
)
_LARGE = 8  # of the numbers before lines
_FEWEST = 4  # ranks that speak, from 0 on, that are taken for the job: fewer may be any part of it
# Ranks of an engine's groups: "[2026-01-01 00:00:00 DP0 TP1]", "scheduler_PP2_TP1".
_ENGINE = re.compile(
    r"(?:\W*\d{4}-\d\d-\d\d[ T][\d:.,]+ |.{0,80}\bscheduler_)((?:[DPTEC]P\d+[ _]?)+(?<=\d))"
)
# glog's times name no year; other writers' times do.
_NO_YEAR = re.compile(r"\W{0,4}[IWEF]\d{3,4} \d\d:")
_A_YEAR = re.compile(r"(?:^\W{0,4}|^\W*time +: |CANCELLED AT )(20\d\d)-\d\d-\d\d[ T_]")


@dataclass(frozen=True, slots=True)
class Line:
    """A telling line. word: the one of WORDS that it contains. text: without prefixes.

    follows: it comes with the line before it. writer: equal for lines of one process. wall: its
    time has no zone.
    """

    number: int
    reader: str
    word: str
    text: str
    process: facts.Process
    writer: tuple[Any, ...]
    time: float | None = None
    coarse: bool = False
    wall: bool = False
    follows: bool = False


@dataclass(frozen=True)
class Log:
    """Lines of one file. lines: in order, of all readers. speakers: processes that wrote any."""

    item: Item
    lines: tuple[Line, ...] = ()
    speakers: tuple[facts.Process, ...] = ()
    count: int = 0
    """How many lines the file has."""
    restarted: int = 0
    """The last line at which the launcher started the ranks again."""

    def of(self, reader: str) -> Iterator[Line]:
        return (line for line in self.lines if line.reader == reader)

    def source(self, line: Line) -> facts.Source:
        return facts.Source(self.item.name, line.number)


def has(item: Item, *readers: str) -> bool:
    """Returns whether a file has lines for one of the readers."""
    found = scan(item)
    return found is not None and any(_READERS[m[1]][0] in readers for m in found["matches"])


def read(items: Sequence[Item], notes: Notes) -> Iterator[Log]:
    """Yields the lines of each file: those since the last start of the ranks."""
    for item in items:
        found = scan(item)
        if found is None:
            notes.add(item, "not readable as a log")
            continue
        yield _log(item, found)
        if found["left_out"]:
            notes.add(
                item, f"{found['left_out']} more lines of the same kinds were left out", lost=False
            )


def identities(log: Log) -> Iterator[facts.Fact]:
    """Yields the writers of lines, and the size of the job where a line says it."""
    source = facts.Source(log.item.name)
    for process in log.speakers:
        if process.rank is not None and (process.host or process.pid):
            yield facts.Identity(process, source)
    spoke = {process.rank for process in log.speakers if process.rank is not None}
    if len(spoke) >= _FEWEST and spoke == set(range(len(spoke))):
        yield facts.World(len(spoke), source, implied=True)
    if size := max(map(_size, (line.text for line in log.of("world"))), default=0):
        yield facts.World(size, source)


def _size(text: str) -> int:
    """Returns the number of ranks that a line says; 0 if it says none."""
    found = (pattern.search(text) for pattern in _SIZES)
    return max((int(each[1]) for each in found if each), default=0)


def _job_size(found: Scan) -> int:
    """Returns the largest number of ranks that a log says; 0 if it says none."""
    said = (_size(m[2]) for m in found["matches"] if _READERS[m[1]][0] == "world")
    return max(said, default=0)


def clocked(logs: Iterable[Log], found: Iterable[facts.Fact]) -> Iterator[facts.Fact]:
    """Yields facts made of lines; those with times without a zone say so."""
    wall = {log.source(line) for log in logs for line in log.lines if line.wall}
    for fact in found:
        if isinstance(fact, (facts.Death, facts.Progress, facts.Stop)) and fact.source in wall:
            yield replace(fact, wall=fact.time is not None)
        elif isinstance(fact, facts.Trouble) and fact.source in wall:
            yield replace(fact, coarse=True)
        else:
            yield fact


def lines_of(item: Item) -> set[int]:
    """Returns the numbers of the lines of a log that hold a word of a reader."""
    found = scan(item)
    return set() if found is None else {match[0] for match in found["matches"]}


def writers(item: Item) -> "Writers | None":
    """Returns the writers of a log; None if it can't be read."""
    found = scan(item)
    return None if found is None else _writers(item, found)


def _are_numbers(found: dict[str, Any]) -> bool:
    """Returns whether what looks like tasks of srun are numbers of lines: each is of one line."""
    tasks = [(each[0][2], each[1], each[2]) for each in found["speakers"] if each[0][2] is not None]
    # One or two lines show that only by large numbers.
    enough = len(tasks) > 2 or min((task for task, _, _ in tasks), default=0) >= _LARGE
    alone = enough and all(task and count == 1 for task, count, _ in tasks)
    return alone and len({line - task for task, _, line in tasks}) == 1


def _writers(item: Item, found: dict[str, Any]) -> "Writers":
    table = (_TABLE_RANK.search(m[2]) for m in found["matches"] if _READERS[m[1]][1] == _RANK_ROW)
    named = rank_in_name("/".join(item.name.rsplit("/", 2)[-2:]))  # rank_3.log, or rank_3/out
    return Writers(
        (speaker[0] for speaker in found["speakers"]),
        item.rank if named is None else named,
        {int(row[1]) - int(row[2]) for row in table if row},
        item.label,
        _job_size(found),
        numbered=_are_numbers(found),
    )


def _log(item: Item, found: dict[str, Any]) -> Log:
    known = _writers(item, found)
    restarts = (m for m in found["matches"] if _READERS[m[1]][1] == "will restart worker group")
    restarted = max((m[0] for m in restarts), default=0)
    behind = [m for m in found["matches"] if m[0] > restarted and _READERS[m[1]][0] != "world"]
    if restarted and (not behind or _is_of_launcher(behind)) and not _goes_on(item, restarted):
        restarted = 0  # the ranks that it started have said nothing
    lines = []
    # Lines of a log that name a year give it to the others.
    years = {said[1] for match in found["matches"] if (said := _A_YEAR.search(match[2]))}
    year = int(years.pop()) if len(years) == 1 else 0
    for number, needle, text, writer, time, follows in found["matches"]:
        reader, word = _READERS[needle]
        if number < restarted:
            continue
        seconds = unix_time(time[0] / 1e9) if time is not None and time[1] != "boot" else None
        process = known.process(writer)
        if process == facts.Process() and (engine := _ENGINE.match(text)):
            process = facts.Process(label=engine[1].replace("_", " "))
        if year and seconds and _NO_YEAR.match(text):
            with suppress(ValueError):  # the 29th of February
                told = datetime.fromtimestamp(seconds, timezone.utc).replace(year=year)
                seconds = told.timestamp()
        coarse, wall = (bool(time[2]), time[1] == "wall") if time is not None else (False, False)
        lines.append(
            Line(number, reader, word, text, process, writer, seconds, coarse, wall, follows)
        )
    speakers = tuple(dict.fromkeys(known.process(speaker[0]) for speaker in found["speakers"]))
    return Log(item, tuple(lines), speakers, found["lines"], restarted)


def _goes_on(item: Item, start: int) -> bool:
    """Returns whether ranks that were started again have made steps, or come to a good end."""
    below = (text for _, text in lines(item, range(start + 1, start + 10_000)))
    told = "\n".join(text for text in below if not NO_PROGRESS.search(text))
    return len({*PROGRESS.findall(told)}) > 1 or FINISHED.search(told) is not None


def _is_of_launcher(matches: Sequence[Sequence[Any]]) -> bool:
    """Returns whether lines are one traceback, and a launcher's own."""
    first, *rest = matches
    return (
        _READERS[first[1]][1] == "Traceback (most recent call last)"
        and all(each[5] for each in rest)
        and any(part in each[2] for each in rest for part in LAUNCHERS)
    )


def placed(items: Sequence[Item]) -> list[Item]:
    """Returns the items; those whose names or folders say a local rank have a rank or a label.

    The local rank is the rank if one folder holds as many as a log, or the names of other files,
    say that the job has.
    """
    sizes = [0]
    found: dict[str, tuple[str, int]] = {}
    for item in items:
        folder, _, base = item.name.rpartition("/")
        if each := _ELASTIC_FILE.match(item.name):
            found[item.name] = (each[1] or "").rstrip("/"), int(each[3])
        elif (rank := rank_in_name(base)) is not None:
            sizes.append(rank + 1)
        elif local := _LOCAL_RANK.findall(base):
            found[item.name] = folder, int(local[-1])
    if not found:
        return list(items)
    folders = {folder for folder, _ in found.values()}
    numbers = {local for _, local in found.values()}
    one_node = len(folders) == 1 and max(numbers) + 1 == len(numbers)
    sizes += [_job_size(told) for item in items if is_text(item) and (told := scan(item))]
    one_node = one_node and len(numbers) == max(sizes)
    common = ""
    with suppress(ValueError):  # some paths are absolute, some are not
        common = os.path.commonpath(folders)

    def with_place(item: Item) -> Item:
        if item.name not in found:
            return item
        folder, local = found[item.name]
        if one_node:
            return replace(item, rank=local, label="")
        own = folder.removeprefix(common).strip("/")
        return replace(item, rank=None, label=f"local rank {local}{f' of {own}' if own else ''}")

    return [*map(with_place, items)]


class Writers:
    """Finds the rank of a writer, by its prefix, or by several lines of the same file.

    first_ranks: global ranks of local rank 0, from torchelastic's tables in the file. label: the
    file's, for writers without a rank. size: of the job, as the file says it; 0: it does not.
    numbered: apparent tasks are numbers of lines.
    A writer is (rank, local rank, task, number behind a host, pid, host, pod).
    """

    def __init__(
        self, writers: Iterable[tuple[Any, ...]], file_rank: int | None, first_ranks: set[int],
        label: str = "", size: int = 0, *, numbered: bool = False,
    ) -> None:  # fmt: skip
        self._file_rank, self._label = file_rank, label
        self._first_rank = next(iter(first_ranks), 0)
        known: dict[tuple[Any, ...], set[int]] = defaultdict(set)
        nodes: set[tuple[Any, ...]] = set()
        hosts_of_number: dict[int, set[str]] = defaultdict(set)
        self._tasks_are_nodes = numbered
        locals_: set[int] = set()
        for rank, local, task, number, pid, host, pod in writers:
            if rank is not None:
                for key in self._keys(local, task, pid, host, pod):
                    known[key].add(rank)
            if task is not None and (local is not None or rank not in (None, task)):
                self._tasks_are_nodes = True
            if local is not None:
                nodes.add((task, host, pod))
                locals_.add(local)
            if number is not None:
                hosts_of_number[number].add(host)
        # A pod has one rank if each of several has: a single one may have more that say nothing.
        pods = [ranks for key, ranks in known.items() if key[0] == "pod"]
        several = len(pods) > 1 and all(len(ranks) == 1 for ranks in pods)
        self._known = {
            key: next(iter(ranks)) for key, ranks in known.items()
            if len(ranks) == 1 and (several or key[0] != "pod")
        }  # fmt: skip
        # One node's log may be of any node, unless it has all ranks of the job.
        whole = not first_ranks and size == len(locals_)
        self._one_node = len(nodes) == 1 and (len(first_ranks) == 1 or whole)
        self._number_is_rank = all(len(hosts) == 1 for hosts in hosts_of_number.values())

    @staticmethod
    def _keys(
        local: int | None, task: int | None, pid: int | None, host: str | None, pod: str | None
    ) -> Iterator[tuple[Any, ...]]:
        if pid is not None:
            yield ("pid", pid, host)
        if local is not None:
            yield ("local", local, task, host, pod)
        elif pod is not None:
            yield ("pod", pod)

    def process(self, writer: tuple[Any, ...]) -> facts.Process:
        rank, local, task, number, pid, host, pod = writer
        if rank is None:
            keys = self._keys(local, task, pid, host, pod)
            rank = next((self._known[key] for key in keys if key in self._known), None)
        if rank is None and task is not None and local is None and not self._tasks_are_nodes:
            rank = task
        if rank is None and number is not None and self._number_is_rank:
            rank = number
        if rank is None and local is not None and self._one_node:
            rank = self._first_rank + local
        if rank is None and self._file_rank is not None:
            rank = self._file_rank
        label = self._label if pid is None else ""
        if local is not None:
            label = f"local rank {local}"
        return facts.Process(rank, host or pod, pid, label if rank is None else "")
