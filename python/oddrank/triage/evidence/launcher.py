"""Reads the ends of ranks from lines of launchers and schedulers: torchrun, srun, mpirun, ..."""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import partial
from typing import TypeAlias

from oddrank.inputs import Item, Notes, unix_time
from oddrank.triage.evidence import Kind, lines, log_lines, rank_in_name, tracebacks
from oddrank.triage.evidence.log_lines import Line, Log
from oddrank.triage.facts import Death, Fact, Identity, Process, Source, Stop, Trouble, World

_MOST_JSON = 4 << 20
_AGENT = re.compile(r"failed \(exitcode: (-?\d+)\) local_rank: (\d+) \(pid: (\d+)\)")
_CLOSING = re.compile(r"[Ss]ending process (\d+) closing signal (\w+)")
_TOLD = re.compile(r"Received (?:Signals\.)?(\w+) death signal")
_FORCED = re.compile(r"process (\d+) via .*forcefully exiting via (?:Signals\.)?(\w+)")
# The line that ends an entry of torchrun's table: a rule, or the number of the next one.
_TABLE_LINE = re.compile(r"-{10,}|={10,}|\[\d+\]:|Root Cause .*")
_ROW = re.compile(r"(time|host|rank|exitcode|error_file|traceback)\s*: ?(.*)")
_RANKS = re.compile(r"(\d+) \(local_rank: (\d+)\)")
_CODE = re.compile(r"(-?\d+)\s*\(pid: (\d+)\)")
_SRUN = re.compile(r"srun: error: (\S+): tasks? ([\d,\- \[\]]+): (.+)")
_SRUN_NODE = re.compile(r"error: (?:Node failure on (\S+)|(\S+): .*[Nn]ode fail)")
_STEP = re.compile(
    r"\*\*\* (?:JOB|STEP) (\S+) ON (\S+) CANCELLED AT (\S+?)(?: DUE TO (.+?))? \*\*\*"
)
# Open MPI's words, and those of Intel's, which tells of each process that it killed, too.
_MPI = re.compile(
    r"(?:(?:process rank|RANK) (\d+) )?(?:with )?PID (\d+) (?:on node|RUNNING AT)"
    r"(?: (?!exited on )(\S+))?[\s=]*(.*)"
)
_MPI_SIGNAL = re.compile(r"signal:? (\d+)", re.IGNORECASE)
# A rank of a part of the job's processes is none of the job.
_MPI_ABORT = re.compile(
    r"MPI_ABORT was invoked on(?:.* Proc: \[\[\d+,1\],(\d+)\]"
    r"| rank (\d+) in communicator (?:MPI_COMM_WORLD|MPI.COMMUNICATOR \d+ DUP FROM 0)\b)?"
    r"|MPI_Abort\(MPI_COMM_WORLD, ?-?\d+\) - process (\d+)"
)
# Launchers that tell of one process in a line, a row each.
_ENDS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        # PALS, Composer
        r"(?:^|[:\]] ?|Global )rank (?P<rank>\d+)(?: \(PID (?P<pid>\d+)\))? (?:exited with code"
        r"|crashed with exit code|died from (?P<signal>signal)) (?P<code>-?\d+)",
        # Lightning, with the number on its node as if it were the rank; and Paddle
        r"Child process with PID (?P<pid>\d+) terminated with code (?P<code>-?\d+)",
        r"Container rank (?P<local>\d+) status failed cmd .* code (?P<code>-?\d+) log ",
        # horovodrun, Docker's compose, shells
        r"\bProcess (?P<rank>\d+) exit with status code (?P<code>-?\d+)",
        r"^(?P<label>[a-z][\w.-]*-\d+) exited with code (?P<code>[1-9]\d*)$",
        r"(?-i:(?:zsh: |(?P<pid>\d+) )(?P<name>[Kk]illed|[Aa]bort|[Ss]egmentation fault))",
        # vLLM, whose engine gives up afterwards
        r"(?-i:Worker) (?:proc )?(?P<label>\S+?)(?: pid (?P<pid>\d+))? died\b.*?"
        r"(?:code: (?P<code>-?\d+)|$)",
    )
)
_MPI_NAME = re.compile(r"Process name: (?:\[\S*,)?(\d+)\b")
_DEEPSPEED = re.compile(r"--local_rank[=', ]+(\d+).*exits with return code = (-?\d+)")
_RAY_PID = re.compile(r"(?:Worker PID|pid)[=: ]+(\d+)")
_RAY_ACTOR = re.compile(r"\b(?:pid|Worker PID): (\d+)")
_RAY_NAME = re.compile(r"^\s*(?:class_)?name: (?:.*\.)?(\S+)\s*$", re.MULTILINE)
_RAY_HOST = re.compile(r"\b(?:ip|Worker IP address|Owner Ip address): (?!0\.0\.0\.0\b)([\w.:-]+)")
_OOM = re.compile(r"oom[-_]kill", re.IGNORECASE)
# What PBS and LSF say of a job that they end. A limit of time has other names there, too.
_LIMIT = re.compile(
    r"(?:(?P<pbs>PBS)|TERM_\w+): job killed(?:: | after reaching LSF | )?(?P<why>.*?)\.?$"
    r"|Job exceeded its (?P<torque>walltime) limit"
)
_LATER_CODE = re.compile(r"exit (?:code|status):\s+(\d+)", re.IGNORECASE)
_NAMED = {"SIGTERM": 15, "SIGKILL": 9, "SIGINT": 2, "SIGABRT": 6}
_OF_MPI = ("process rank", "RUNNING AT", "MPI_ABORT was invoked", "Process name: ",
           "called MPI_Abort")  # fmt: skip
_NODES_OF_RAY = ("node has died", "node has crashed")
_OF_RAY = ("Worker unexpectedly exits", "Worker exits unexpectedly", *_NODES_OF_RAY)
_ROWS = frozenset({"time      :", "host      :", "rank      :", "exitcode  :", "error_file:",
                   "traceback :"})  # fmt: skip


def _ended(process: Process, code: int, source: Source, **more: object) -> Death:
    """Returns a death by an exit code; negative and above 128: a signal ended the process."""
    number = -code if code < 0 else code - 128 if 128 < code < 160 else None
    death = Death(process, "signal", source, signal=number)
    if number is None:
        death = Death(process, "exit", source, code=code)
    return replace(death, **more)  # type: ignore[arg-type]


def _told(said: dict[str, str | None], line: Line, source: Source) -> Death:
    """Returns the end that a row of _ENDS tells."""
    rank, pid, code = (int(text) if (text := said.get(name)) else None
                       for name in ("rank", "pid", "code"))  # fmt: skip
    label = said.get("label") or ""
    local: object = said.get("local")
    if line.word == "Child process with PID":
        local = line.process.rank
    label = label if local is None else f"local rank {local}"
    rank = line.process.rank if rank is None and not label else rank
    process = Process(rank, line.process.host, pid, label)
    if name := said.get("name"):
        code = -next(n for word, n in tracebacks.SIGNALS.items() if name.capitalize() in word)
    if code is None:
        return Death(process, "exit", source, line.time, text="its engine does not know how")
    code = -code if said.get("signal") else code
    told = code == -15 or "exit with status code 143" in line.text  # horovodrun's
    return _ended(process, code, source, time=line.time, by="launcher" if told else "")


@dataclass
class _Entry:
    """An entry of torchelastic's table of failures."""

    line: Line
    host: str | None = None
    rank: int | None = None
    local: int | None = None
    pid: int | None = None
    code: int | None = None
    when: float = 0.0
    """When it ended by its own line, whose zone is not known."""
    traceback: tuple[str, ...] = ()
    ended: bool = False
    """The next entry of the table has begun: what follows is not of this traceback."""


@dataclass
class _Agent:
    """Lines of one node's agent. failed: line, exit code, local rank, pid."""

    entries: list[_Entry] = field(default_factory=list)
    failed: list[tuple[Line, int, int, int]] = field(default_factory=list)
    closed: dict[int, Line] = field(default_factory=dict)
    forced: dict[int, Line] = field(default_factory=dict)

    @property
    def pids(self) -> list[int]:
        return sorted({pid for *_, pid in self.failed} | self.closed.keys() | self.forced.keys())

    @property
    def launches(self) -> bool:
        """Whether it ended processes. Other lines look like rows of its table, too."""
        return bool(self.pids) or any(entry.code is not None for entry in self.entries)


@dataclass(frozen=True)
class _Job:
    """The launchers in all files. agents: those of torchrun. size: the largest that a log says."""

    launchers: bool
    agents: int
    size: int


_Later: TypeAlias = Callable[[_Job], Iterator[Fact]]
"""Makes facts of a line when all files have been read."""


def _around(line: Line) -> range:
    """Returns the numbers of the lines in which Ray tells more of what it tells in one."""
    return range(max(line.number - 8, 1), line.number + 3)


def _of_mpi(death: Death, job: _Job) -> Iterator[Fact]:
    """Yields an end of a process of mpirun: no rank of the job, if such a process is a launcher."""
    rank = None if job.launchers else death.process.rank
    yield replace(death, process=replace(death.process, rank=rank))


class _Reader:
    """Reads one log's lines of launchers, and of SLURM."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._agents: dict[object, _Agent] = defaultdict(_Agent)
        self._others: list[Fact | _Later] = []
        self._mpi: dict[object, tuple[Line, str]] = {}
        self._hydra: list[Death] = []  # by Intel's mpirun, which kills those that are left
        self._failed = False  # a task of srun or horovodrun, which then kill the others
        self._sum: Death | None = None  # of Ray's memory monitor
        self.deepspeed = False
        self._read()

    @property
    def agents(self) -> list[_Agent]:
        return [agent for agent in self._agents.values() if agent.launches]

    def facts(self, job: _Job) -> Iterator[Fact]:
        for agent in self._agents.values():
            yield from self._torchrun(agent, job)
        for other in self._others:
            if callable(other):
                yield from other(job)
            else:
                yield other

    def _read(self) -> None:
        near = {n for line in self._log.of("launcher") if line.word in _OF_RAY
                for n in _around(line)}  # fmt: skip
        self._near = dict(lines.lines(self._log.item, near))
        for line in self._log.of("launcher"):
            if line.word in _ROWS:
                self._row(line)
            elif line.follows:
                self._follow(line)
            else:
                self._line(line)
        for writer in list(self._mpi):
            self._mpi_done(writer)
        if self._sum and not any(isinstance(d, Death) and d.how == "oom" for d in self._others):
            self._others.append(self._sum)
        killed = [death for death in self._hydra if death.signal == 9]
        told = [death for death in self._hydra if death.how != "abort"]  # else it was cut off
        own = [death for death in told if death.signal not in (9, 15)]
        own = own or killed * (len(killed) == 1 and told == self._hydra)
        self._others += own + [replace(d, by="launcher") for d in self._hydra if d not in own]

    def _agent(self, line: Line) -> _Agent:
        """Returns the agent that wrote a line: prefixes tell those of several nodes apart."""
        _, _, task, _, _, host, pod = line.writer
        return self._agents[task, host, pod]

    def _row(self, line: Line) -> None:
        entries = self._agent(line).entries
        entry = entries[-1] if entries else None
        found = _ROW.search(line.text)
        if line.follows:
            if entry is not None and _TABLE_LINE.fullmatch(line.text.strip()):
                entry.ended = True
            elif entry is not None and not entry.ended:
                entry.traceback = (*entry.traceback, line.text)
            return
        if found is None:
            return
        name, value = found[1], found[2].strip()
        if name == "time" or entry is None:
            entry = _Entry(line)
            entries.append(entry)
        if name == "time":
            with suppress(ValueError):
                read = datetime.strptime(value, "%Y-%m-%d_%H:%M:%S")
                entry.when = read.replace(tzinfo=timezone.utc).timestamp()
        elif name == "host":
            entry.host = value or None
        elif name == "rank" and (ranks := _RANKS.search(value)):
            entry.rank, entry.local = int(ranks[1]), int(ranks[2])
        elif name == "exitcode" and (code := _CODE.search(value)):
            entry.code, entry.pid = int(code[1]), int(code[2])
        elif name == "traceback":
            entry.traceback = (value,)

    def _follow(self, line: Line) -> None:
        if line.writer in self._mpi:
            first, text = self._mpi[line.writer]
            self._mpi[line.writer] = first, f"{text} {line.text.strip()}"

    def _line(self, line: Line) -> None:
        source, text = self._log.source(line), line.text
        self._mpi_done(line.writer)
        if found := _AGENT.search(text):
            self._agent(line).failed.append((line, int(found[1]), int(found[2]), int(found[3])))
        elif found := _FORCED.search(text):
            self._agent(line).forced.setdefault(int(found[1]), line)
        elif found := _CLOSING.search(text):
            self._agent(line).closed.setdefault(int(found[1]), line)
        elif found := _TOLD.search(text):
            number = int(found[1]) if found[1].isdecimal() else _NAMED.get(found[1])
            self._others.append(Stop("torchrun", source, line.time, number))
        elif "srun: error:" in text:
            self._srun(text, line, source)
        elif "slurmstepd" in text:
            self._slurmstepd(text, line, source)
        elif line.word in _OF_MPI:
            self._mpi[line.writer] = line, text.strip()
        elif found := _LIMIT.search(text):
            why = found["torque"] or found["why"]
            told = "time limit" if re.search("walltime|run time", why) else why
            by = "PBS" if found["pbs"] or found["torque"] else "LSF"
            self._others.append(Stop(by, source, line.time, why=told))
        elif found := next(filter(None, (pattern.search(text) for pattern in _ENDS)), None):
            death = _told(found.groupdict(), line, source)
            if "exit with status code" in text:  # horovodrun kills those that are left
                by = "launcher" if self._failed else death.by
                death = replace(death, by=by, among=death.signal == 9)
                self._failed |= death.signal not in (9, 15)
            self._others.append(death)
        elif found := _DEEPSPEED.search(text):
            self.deepspeed = True
            # The command is always that of the last process, whichever it was that ended.
            last = int(found[1])
            label = f"one of local ranks 0-{last}" if last else "local rank 0"
            process = Process(None, line.process.host, label=label)
            self._others.append(_ended(process, int(found[2]), source, time=line.time))
        else:
            self._memory(line, source)

    def _spoke(self) -> set[int]:
        """Returns the ranks whose own lines are in the file."""
        return {process.rank for process in self._log.speakers if process.rank is not None}

    def _memory(self, line: Line, source: Source) -> None:
        text = line.text.strip()
        if line.word == "running low on memory":
            pid = _RAY_PID.search(text)
            process = replace(line.process, pid=int(pid[1])) if pid else line.process
            self._others.append(Death(process, "oom", source, line.time,
                                      by="memory monitor of Ray", text=text[:300]))  # fmt: skip
        elif line.word == "memory pressure (OOM)":  # it sums up what it has killed
            host = re.search(r"\bIP: ([\w.:-]+)", text)
            process = Process(None, host[1] if host else line.process.host)
            self._sum = Death(process, "oom", source, line.time, by="memory monitor of Ray",
                              text=text[:300])  # fmt: skip
        elif line.word == "Peer host:":
            peer = Process(None, text.partition("Peer host:")[2].strip() or None)
            self._others.append(Death(peer, "exit", source, line.time,
                                      text="Open MPI does not know how"))  # fmt: skip
        elif line.word == "exit code 137":
            self._others.append(_ended(line.process, 137, source, time=line.time))
        elif line.word in _OF_RAY:
            self._ray(line, source)

    def _ray(self, line: Line, source: Source) -> None:
        """Reads what a driver says of an actor that died: its pid and address stand above."""
        near = {number: self._near.get(number, "") for number in _around(line)}
        above = "\n".join(text for number, text in near.items() if number <= line.number)
        pid, host = _RAY_ACTOR.findall(above), _RAY_HOST.findall(above)
        if line.word not in _NODES_OF_RAY:
            process = replace(line.process, pid=int(pid[-1])) if pid else line.process
            process = replace(process, host=host[-1]) if host else process
            if process.rank is None and (names := _RAY_NAME.findall(above)):
                process = replace(process, label=names[-1])
            self._others.append(Death(process, "exit", source, line.time,
                                      text="Ray does not know how"))  # fmt: skip
            return
        taken = any("preempt" in text for text in near.values())
        why = "the node was preempted" if taken else "the node died"
        worker = f", with the actor of pid {pid[-1]}" if pid else ""
        told, node = f"{why}{worker}, as Ray says", host[-1] if host else None
        self._others.append(Trouble("node", told, source, node, fatal=True, time=line.time))

    def _srun(self, text: str, line: Line, source: Source) -> None:
        if found := _SRUN_NODE.search(text):
            host = (found[1] or found[2]).strip(":,")
            self._others.append(Trouble("node", f"SLURM: node failure on {host}", source, host,
                                        fatal=True, time=line.time))  # fmt: skip
            return
        if found := _SRUN.search(text):
            self._others.append(partial(self._tasks, found, line, source))

    def _tasks(self, found: re.Match[str], line: Line, source: Source, job: _Job) -> Iterator[Fact]:
        host, tasks, what = found[1], _numbers(found[2]), found[3].strip()
        number = next((n for word, n in tracebacks.SIGNALS.items() if what.startswith(word)), None)
        code = re.match(r"Exited with exit code (\d+)", what)
        self._failed |= number not in (None, 9, 15) or what.startswith(("Exited", "Out"))
        # Tasks that are launchers, perhaps with a log elsewhere, have numbers of their own.
        for task in tasks:
            process = Process(None if job.launchers else task, host)
            if what.startswith("Out Of Memory"):
                yield Death(process, "oom", source, line.time, by="kernel")
            elif number is not None:
                by = "launcher" if number == 15 or (number == 9 and self._failed) else ""
                yield Death(process, "signal", source, line.time, signal=number, by=by,
                            among=number in (6, 9))  # fmt: skip
            elif code and not job.launchers:
                yield _ended(process, int(code[1]), source, time=line.time)

    def _slurmstepd(self, text: str, line: Line, source: Source) -> None:
        if _OOM.search(text):
            self._others.append(Trouble("oom", text.partition("error:")[2].strip()[:300], source,
                                        line.process.host, fatal=True, time=line.time))  # fmt: skip
        if not (found := _STEP.search(text)):
            return
        why = found[4] or ""
        if "NODE FAIL" in why:
            self._others.append(Trouble("node", "SLURM cancelled the step: node failure", source,
                                        fatal=True, time=line.time))  # fmt: skip
        else:
            self._others.append(Stop("SLURM", source, line.time, why=why.lower()))

    def _mpi_done(self, writer: object) -> None:
        if writer not in self._mpi:
            return
        line, text = self._mpi.pop(writer)
        source = self._log.source(line)
        if found := _MPI.search(text):
            pid = int(found[2]) or None
            rank = int(found[1]) if found[1] else None
            process = Process(rank, (found[3] or "").rstrip(".") or None, pid)
            number, code = _MPI_SIGNAL.search(found[4]), _LATER_CODE.search(found[4])
            death = Death(process, "abort", source, line.time)
            if number or code:
                ended = -int(number[1]) if number else int(code[1]) if code else 0
                death = _ended(process, ended, source, time=line.time)
            if line.word == "RUNNING AT":
                self._hydra.append(replace(death, among=death.signal in (6, 9)))
            else:
                self._others.append(partial(_of_mpi, death))
        elif found := _MPI_ABORT.search(text):
            named = next(filter(None, found.groups()), None)
            process = Process(int(named)) if named else line.process
            death = Death(process, "abort", source, line.time, text="it called MPI_Abort")
            self._others.append(partial(_of_mpi, death))
        elif (found := _MPI_NAME.search(text)) and (code := _LATER_CODE.search(text)):
            death = _ended(Process(int(found[1])), int(code[1]), source, time=line.time)
            self._others.append(partial(_of_mpi, death))

    def _torchrun(self, agent: _Agent, job: _Job) -> Iterator[Fact]:
        """Yields what an agent says: first its table, which names ranks, then its other lines."""
        by_pid: dict[int, int] = {}
        last = max(agent.entries, key=lambda entry: entry.when, default=None)
        for entry in agent.entries:
            process = Process(entry.rank, entry.host, entry.pid)
            source = self._log.source(entry.line)
            if entry.rank is not None and entry.pid is not None:
                by_pid[entry.pid] = entry.rank
                yield Identity(process, source)
            if entry.code is not None:
                site, text = tracebacks.parse(entry.traceback[1:])
                time = entry.line.time
                if last and last.line.time and entry.when:  # a prefix tells when it was written
                    time = last.line.time + entry.when - last.when
                among = not agent.failed and entry.code in (1, -6)
                death = _ended(process, entry.code, source, time=time, coarse=True, among=among)
                if site:
                    death = replace(death, how="exception", text=text, site=site)
                yield death
        ranks = {entry.rank for entry in agent.entries} - {None}
        if len(ranks) > 1 and ranks == set(range(len(ranks))):
            yield World(len(ranks), self._log.source(agent.entries[0].line))
        locals_ = {pid: local for _, _, local, pid in agent.failed}
        first = self._first_rank(agent, job)
        known = dict(by_pid)
        if first is not None:
            known = {pid: first + local for pid, local in locals_.items()} | by_pid
        numbers = _ranks_by_pid(known or locals_, sorted({*known, *agent.pids}))

        def named(pid: int, line: Line) -> Process:
            number = numbers.get(pid, locals_.get(pid))
            rank = numbers.get(pid) if known else None
            label = f"local rank {number}" if rank is None and number is not None else ""
            return Process(rank, line.process.host, pid, label)

        for line, code, _, pid in agent.failed:
            if pid not in by_pid:
                yield _ended(named(pid, line), code, self._log.source(line), time=line.time)
        for pid, line in (agent.closed | agent.forced).items():
            forced = pid in agent.forced
            yield Death(
                named(pid, line), "signal", self._log.source(line), line.time,
                signal=9 if forced else _NAMED.get(_closing_signal(line), 15), by="launcher",
                text="it did not end at SIGTERM" if forced else "",
            )  # fmt: skip

    def _first_rank(self, agent: _Agent, job: _Job) -> int | None:
        """Returns the global rank of an agent's local rank 0; None if it is unknown.

        Its table says it. Without a table it is 0 if the agent has as many processes as the job, or
        if the ranks whose lines are in the file have the numbers of its processes, and no others.
        """
        pairs = [(entry.rank, entry.local) for entry in agent.entries]
        firsts = {rank - local for rank, local in pairs if rank is not None and local is not None}
        if firsts:
            return firsts.pop() if len(firsts) == 1 else None
        locals_ = {local for _, _, local, _ in agent.failed}
        if len(agent.pids) == 1 and locals_ == {0}:
            said = agent.failed[0][0].process.rank
            if said is not None:
                return said
        whole = job.size == len(agent.pids) and job.agents == 1
        spoke = self._spoke()
        own = spoke == set(range(len(agent.pids))) and len(spoke) > 1
        alone = job.size <= len(agent.pids) and len(self.agents) == 1
        return 0 if whole or (alone and own) else None


def _ranks_by_pid(known: dict[int, int], pids: list[int]) -> dict[int, int]:
    """Returns the ranks of an agent's processes: it starts them in order of rank, so pids rise.

    The known ranks must fit, or nothing is said of the others.
    """
    offsets = {rank - pids.index(pid) for pid, rank in known.items()}
    if len(offsets) != 1:
        return known
    first = offsets.pop()
    return {pid: first + index for index, pid in enumerate(pids)}


def _closing_signal(line: Line) -> str:
    found = _CLOSING.search(line.text)
    return found[2] if found else ""


def _numbers(text: str) -> list[int]:
    """Returns the numbers of a list such as 0-2,5, at most 4096 of them."""
    found: list[int] = []
    for low, high in re.findall(r"(\d+)(?:-(\d+))?", text):
        end = min(int(high) if high else int(low), int(low) + 4096)
        found += range(int(low), end + 1)
    return found[:4096]


def _is_error_file(item: Item) -> bool:
    """Returns whether a file is an error.json of torchelastic."""
    head = item.head.lstrip()[:1]
    return head == b"{" and b'"message"' in item.head and (
        b'"extraInfo"' in item.head or b'"py_callstack"' in item.head
    )  # fmt: skip


def _error_file(item: Item, notes: Notes) -> Iterator[Fact]:
    try:
        if item.size > _MOST_JSON:
            raise ValueError("too large")
        content = json.loads(item.path.read_bytes())["message"]
        extra = content.get("extraInfo", {}) if isinstance(content, dict) else {}
        text = str(content.get("message", "") if isinstance(content, dict) else content)
        stack = str(extra.get("py_callstack", ""))
        stamp = unix_time(extra.get("timestamp"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        notes.add(item, f"no error file of torchelastic: {error}")
        return
    site, _ = tracebacks.parse(stack.splitlines()[:10_000])
    stopped = "SignalException" in text
    # `oddrank collect` names its copies by the rank.
    rank = rank_in_name(item.name.rpartition("/")[2]) if item.rank is None else item.rank
    process = Process(rank, label=item.label)
    yield Death(
        process, "signal" if stopped else "exception", Source(item.name), stamp, coarse=True,
        signal=15 if stopped else None, by="launcher" if stopped else "",
        text="" if stopped else text[:2000], site=site,
    )  # fmt: skip


def _sniff(item: Item) -> bool:
    return _is_error_file(item) or log_lines.has(item, "launcher") or log_lines.has(item, "world")


def _read(items: Sequence[Item], notes: Notes) -> Iterable[Fact]:
    for item in items:
        if _is_error_file(item):
            yield from _error_file(item, notes)
    logs = list(log_lines.read([item for item in items if not _is_error_file(item)], notes))
    readers = [_Reader(log) for log in logs]
    named = [list(log_lines.identities(log)) for log in logs]
    agents = sum(len(reader.agents) for reader in readers)
    job = _Job(
        launchers=agents > 0 or any(reader.deepspeed for reader in readers),
        agents=agents,
        size=max((f.size for facts in named for f in facts if isinstance(f, World)), default=0),
    )
    for log, reader, facts in zip(logs, readers, named, strict=True):
        yield from facts
        yield from log_lines.clocked([log], reader.facts(job))


KIND = Kind("launcher", binary=False, sniff=_sniff, read=_read)
