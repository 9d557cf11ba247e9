"""Reads the ends of ranks from lines of launchers and schedulers: torchrun, srun, mpirun, ..."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

from oddrank.inputs import Item, Notes, unix_time
from oddrank.triage.evidence import (
    Kind,
    lines,
    log_lines,
    of_json,
    rank_in_name,
    signal_number,
    time_in,
    tracebacks,
)
from oddrank.triage.evidence.log_lines import Line, Log
from oddrank.triage.evidence.nccl_ras import ranks_of
from oddrank.triage.facts import (
    Advice,
    Death,
    Fact,
    Identity,
    Process,
    Source,
    Stop,
    Trouble,
    World,
)

_AGENT = re.compile(r"failed \(exitcode: (-?\d+)\) local_rank: (\d+) \(pid: (\d+)\)")
_CLOSING = re.compile(r"[Ss]ending process (\d+) closing signal (\w+)")
_FORCED = re.compile(r"process (\d+) via .*forcefully exiting via (?:Signals\.)?(\w+)")
# The line that ends an entry of torchrun's table: a rule, or the number of the next one.
_TABLE_LINE = re.compile(r"-{10,}|={10,}|\[\d+\]:|Root Cause .*")
_ROW = re.compile(
    r"time\s*: ?(?P<when>.*)|host\s*: ?(?P<host>.*)|traceback\s*: ?(?P<traceback>.*)|error_file\s*:"
    r"|rank\s*: ?(?P<rank>\d+) \(local_rank: (?P<local>\d+)\)"
    r"|exitcode\s*: ?(?P<code>-?\d+)\s*\(pid: (?P<pid>\d+)\)"
)
# Messages of Open MPI, and of Intel's mpirun, which names each process that it killed, too.
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
        # PALS
        r"(?:^|[:\]] ?)rank (?P<rank>\d+) (?:exited with code|died from (?P<signal>signal)) "
        r"(?P<code>-?\d+)",
        # Lightning, with the number on its node as if it were the rank
        r"Child process with PID (?P<pid>\d+) terminated with code (?P<code>-?\d+)",
        # bash
        r"(?-i:(?P<pid>\d+) (?P<name>Killed|Abort|Segmentation fault))",
        # vLLM, whose engine gives up afterwards
        r"(?-i:Worker) (?:proc )?(?P<label>\S+?)(?: pid (?P<pid>\d+))? died\b.*?"
        r"(?:code: (?P<code>-?\d+)|$)",
        r"(?-i:exit code (?P<code>137))",
    )
)
_MPI_NAME = re.compile(r"Process name: (?:\[\S*,)?(\d+)\b")
_DEEPSPEED = re.compile(r"--local_rank[=', ]+(\d+).*exits with return code = (-?\d+)")
_RAY_PID = re.compile(r"(?:Worker PID|pid)[=: ]+(\d+)")
_RAY_ACTOR = re.compile(r"\b(?:pid|Worker PID): (\d+)")
_RAY_NAME = re.compile(r"^\s*(?:class_)?name: (?:.*\.)?(\S+)\s*$", re.MULTILINE)
_RAY_HOST = re.compile(r"\b(?:ip|Worker IP address|Owner Ip address): (?!0\.0\.0\.0\b)([\w.:-]+)")
_OOM = re.compile(r"oom[-_]kill|exceeded (?:\w+ )?(memory limit)", re.IGNORECASE)
_LATER_CODE = re.compile(r"exit (?:code|status):\s+(\d+)", re.IGNORECASE)
_OF_MPI = ("process rank", "RUNNING AT", "MPI_ABORT was invoked", "Process name: ",
           "called MPI_Abort")  # fmt: skip
_NODES_OF_RAY = ("node has died", "node has crashed")
_OF_RAY = ("Worker unexpectedly exits", "Worker exits unexpectedly", *_NODES_OF_RAY)
_ROWS = frozenset({"time      :", "host      :", "rank      :", "exitcode  :", "error_file:",
                   "traceback :"})  # fmt: skip


def _ended(process: Process, code: int, source: Source, **more: Any) -> Death:
    """Returns a death by an exit code; negative and above 128: a signal ended the process."""
    number = -code if code < 0 else code - 128 if 128 < code < 160 else None
    if number is None:
        return Death(process, "exit", source, code=code, **more)
    return Death(process, "signal", source, signal=number, **more)


def _number(text: str | None) -> int | None:
    return int(text) if text else None


_OF_ROW: dict[str, Callable[[str], object]] = {
    "when": lambda text: time_in(text)[0] or 0.0, "traceback": lambda text: (text,),
    "host": lambda text: None if text.strip() in ("", "localhost") else text.strip(),
}  # fmt: skip


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
    """Lines of one node's agent. failed: line, exit code, local rank, pid.

    closed, forced: by pid, the line and the signal. It forces those that closing does not end.
    """

    entries: list[_Entry] = field(default_factory=list)
    failed: list[tuple[Line, int, int, int]] = field(default_factory=list)
    closed: dict[int, tuple[Line, int]] = field(default_factory=dict)
    forced: dict[int, tuple[Line, int]] = field(default_factory=dict)

    @property
    def pids(self) -> list[int]:
        return sorted({pid for *_, pid in self.failed} | self.closed.keys() | self.forced.keys())

    def row(self, line: Line) -> None:
        """Takes a row of its table, or a line of a traceback in it."""
        entry = self.entries[-1] if self.entries else None
        if line.follows:
            if entry is not None and _TABLE_LINE.fullmatch(line.text.strip()):
                entry.ended = True
            elif entry is not None and not entry.ended:
                entry.traceback = (*entry.traceback, line.text)
            return
        if (found := _ROW.search(line.text)) is None:
            return
        told = {name: value for name, value in found.groupdict().items() if value is not None}
        if entry is None or "when" in told:
            self.entries.append(entry := _Entry(line))
        for name, value in told.items():
            setattr(entry, name, _OF_ROW.get(name, int)(value))


@dataclass(frozen=True)
class _Job:
    """The launchers in all files. agents: number of torchrun's. size: the largest in a log."""

    launchers: bool
    agents: int
    size: int


def _around(line: Line) -> range:
    """Returns the numbers of the lines in which Ray tells more of what it tells in one."""
    return range(max(line.number - 8, 1), line.number + 3)


class _Reader:
    """Reads one log's lines of launchers and SLURM: the agents' lines first, then the others."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._agents: dict[object, _Agent] = defaultdict(_Agent)
        self._lines: list[Line] = []  # lines of no agent
        self._mpi: dict[object, tuple[Line, str]] = {}
        self._hydra: list[Death] = []  # by Intel's mpirun, which kills those that are left
        self._failed = False  # a task of srun, which then kills the others
        self._sum: Death | None = None  # of Ray's memory monitor
        self._verdict: Stop | None = None  # the last one of `oddrank run`
        for line in (line for line in log.lines if line.reader in ("launcher", "told")):
            # Prefixes tell the agents of several nodes apart.
            _, _, task, _, _, host, pod = line.writer
            node = task, host, pod
            if line.word in _ROWS:
                self._agents[node].row(line)
            elif line.follows:
                self._lines.append(line)
            elif found := _AGENT.search(line.text):
                failed = line, int(found[1]), int(found[2]), int(found[3])
                self._agents[node].failed.append(failed)
            elif found := _FORCED.search(line.text):
                self._agents[node].forced.setdefault(int(found[1]), (line, 9))
            elif found := _CLOSING.search(line.text):
                ended = line, signal_number(found[2]) or 15
                self._agents[node].closed.setdefault(int(found[1]), ended)
            else:
                self._lines.append(line)
        # Those that ended processes: other lines look like rows of a table, too.
        self.agents = [
            agent for agent in self._agents.values()
            if agent.pids or any(entry.code is not None for entry in agent.entries)
        ]  # fmt: skip
        self.deepspeed = any(_DEEPSPEED.search(line.text) for line in self._lines)

    def facts(self, job: _Job) -> Iterator[Fact]:
        self._job = job
        near = {n for line in self._lines if line.word in _OF_RAY for n in _around(line)}
        self._near = dict(lines.lines(self._log.item, near))
        for agent in self._agents.values():
            yield from self._torchrun(agent, job)
        dead = False
        for line in self._lines:
            for fact in self._line(line):
                dead |= isinstance(fact, Death) and fact.how == "oom"
                yield fact
        for writer in list(self._mpi):
            yield from self._mpi_done(writer)
        if self._sum and not dead:
            yield self._sum
        if self._verdict:
            yield self._verdict
        killed = [death for death in self._hydra if death.signal == 9]
        told = [death for death in self._hydra if death.how != "abort"]  # else it was cut off
        own = [death for death in told if death.signal not in (9, 15)]
        own = own or killed * (len(killed) == 1 and told == self._hydra)
        yield from own
        yield from (replace(d, by="launcher") for d in self._hydra if d not in own)

    def _line(self, line: Line) -> Iterator[Fact]:
        if line.follows:
            if line.writer in self._mpi:
                first, text = self._mpi[line.writer]
                self._mpi[line.writer] = first, f"{text} {line.text.strip()}"
            return
        yield from self._mpi_done(line.writer)
        if line.word in _OF_MPI:
            self._mpi[line.writer] = line, line.text.strip()
            return
        for pattern, take in _LINES:
            if found := pattern.search(line.text):
                yield from take(self, found, line, self._log.source(line))
                return

    def _told_to_end(self, found: re.Match[str], line: Line, source: Source) -> Iterator[Fact]:
        number = int(found[1]) if found[1].isdecimal() else signal_number(found[1])
        yield Stop("torchrun", source, line.time, number)

    def _of_run(self, found: re.Match[str], line: Line, source: Source) -> Iterator[Fact]:
        """Keeps the ranks that `oddrank run` named last; none if the job went on."""
        stop = Stop("oddrank run", source, why=found["text"] or found["ends"] or "")
        if found["saved"]:
            yield Advice(f"saved:{found['saved'].strip()}", source)
        elif found["ends"]:
            yield stop
        else:
            self._verdict = _verdict_of_run(found, source)

    def _over_limit(self, found: re.Match[str], line: Line, source: Source) -> Iterator[Fact]:
        why = found["torque"] or found["why"]
        told = "time limit" if re.search("walltime|run time", why) else why
        by = "PBS" if found["pbs"] or found["torque"] else "LSF"
        yield Stop(by, source, line.time, why=told)

    def _ended(self, found: re.Match[str], line: Line, source: Source) -> Iterator[Fact]:
        """Reads a row of _ENDS."""
        said = found.groupdict()
        rank, pid, code = (_number(said.get(name)) for name in ("rank", "pid", "code"))
        local = line.process.rank if line.word == "Child process with PID" else None
        label = (said.get("label") or "") if local is None else f"local rank {local}"
        process = line.process
        if label or pid or rank is not None:
            rank = process.rank if rank is None and not label else rank
            process = Process(rank, process.host, pid, label)
        if name := said.get("name"):
            code = -next(n for word, n in tracebacks.SIGNALS.items() if name in word)
        if code is None:
            yield Death(process, "exit", source, line.time, text="its engine does not know how")
        else:
            code = -code if said.get("signal") else code
            by = "launcher" if code == -15 else ""
            yield _ended(process, code, source, time=line.time, by=by)

    def _deepspeed(self, found: re.Match[str], line: Line, source: Source) -> Iterator[Fact]:
        # The command is always the last process's, whichever process ended.
        last = int(found[1])
        label = f"one of local ranks 0-{last}" if last else "local rank 0"
        process = Process(None, line.process.host, label=label)
        yield _ended(process, int(found[2]), source, time=line.time)

    def _peer(self, found: re.Match[str], line: Line, source: Source) -> Iterator[Fact]:
        peer = Process(None, found[1].strip() or None)
        yield Death(peer, "exit", source, line.time, text="Open MPI does not know how")

    def _of_memory(self, found: re.Match[str], line: Line, source: Source) -> Iterator[Fact]:
        text, pid = line.text.strip(), _RAY_PID.search(line.text)
        process = replace(line.process, pid=int(pid[1])) if pid else line.process
        if sums := found[0].startswith("memory"):  # it sums up what it has killed
            host = re.search(r"\bIP: ([\w.:-]+)", text)
            process = Process(None, host[1] if host else line.process.host)
        death = Death(process, "oom", source, line.time, by="memory monitor of Ray",
                      text=text[:300])  # fmt: skip
        if sums:
            self._sum = death
        else:
            yield death

    def _ray(self, found: re.Match[str], line: Line, source: Source) -> Iterator[Fact]:
        """Reads what a driver says of an actor that died: its pid and address stand above."""
        near = {number: self._near.get(number, "") for number in _around(line)}
        above = "\n".join(text for number, text in near.items() if number <= line.number)
        pid, host = _RAY_ACTOR.findall(above), _RAY_HOST.findall(above)
        process = replace(line.process, pid=int(pid[-1])) if pid else line.process
        process = replace(process, host=host[-1]) if host else process
        if process.rank is None and (names := _RAY_NAME.findall(above)):
            process = replace(process, label=names[-1])
        if found[0] not in _NODES_OF_RAY:
            yield Death(process, "exit", source, line.time, text="Ray does not know how")
        elif any("preempt" in text for text in near.values()):
            yield Death(process, "evicted", source, line.time, text="its node was preempted")
        else:
            worker = f", with the actor of pid {pid[-1]}" if pid else ""
            yield Trouble("node", f"the node died{worker}, as Ray says", source,
                          host[-1] if host else None, fatal=True, time=line.time)  # fmt: skip

    def _srun_node(self, found: re.Match[str], line: Line, source: Source) -> Iterator[Fact]:
        host = (found[1] or found[2]).strip(":,")
        yield Trouble("node", f"SLURM: node failure on {host}", source, host, fatal=True,
                      time=line.time)  # fmt: skip

    def _tasks(self, found: re.Match[str], line: Line, source: Source) -> Iterator[Fact]:
        host, what = found[1], found[3].strip()
        number = next((n for word, n in tracebacks.SIGNALS.items() if what.startswith(word)), None)
        code = re.match(r"Exited with exit code (\d+)", what)
        self._failed |= number not in (None, 9, 15) or what.startswith(("Exited", "Out"))
        # Tasks that are launchers, perhaps with a log elsewhere, have numbers of their own.
        for task in ranks_of(found[2]):
            process = Process(None if self._job.launchers else task, host)
            if what.startswith("Out Of Memory"):
                yield Death(process, "oom", source, line.time, by="kernel")
            elif number is not None:
                by = "launcher" if number == 15 or (number == 9 and self._failed) else ""
                yield Death(process, "signal", source, line.time, signal=number, by=by,
                            among=number in (6, 9))  # fmt: skip
            elif code and not self._job.launchers:
                yield _ended(process, int(code[1]), source, time=line.time)

    def _slurmstepd(self, found: re.Match[str], line: Line, source: Source) -> Iterator[Fact]:
        if killed := _OOM.search(line.text):
            if killed[1]:
                yield Stop("SLURM", source, line.time, why=killed[1])
            yield Trouble("oom", line.text.partition("error:")[2].strip()[:300], source,
                          line.process.host, fatal=True, time=line.time)  # fmt: skip
        if "NODE FAIL" in (found[2] or ""):
            if not any("ode fail" in each.text for each in self._lines):  # srun names it
                yield Trouble("node", "SLURM cancelled the step: node failure", source, fatal=True,
                              time=line.time)  # fmt: skip
        elif found[1] is not None:
            yield Stop("SLURM", source, line.time, why=(found[2] or "").lower())

    def _mpi_done(self, writer: object) -> Iterator[Fact]:
        """Yields an end of a process of mpirun: no rank of the job if it is a launcher."""
        if writer not in self._mpi:
            return
        line, text = self._mpi.pop(writer)
        source, process, code = self._log.source(line), line.process, _LATER_CODE.search(text)
        death = Death(process, "abort", source, line.time)
        if found := _MPI.search(text):
            process = Process(_number(found[1]), (found[3] or "").rstrip(".") or None,
                              int(found[2]) or None)  # fmt: skip
            death = replace(death, process=process)
            if number := _MPI_SIGNAL.search(found[4]):
                death = _ended(process, -int(number[1]), source, time=line.time)
            elif code := _LATER_CODE.search(found[4]):
                death = _ended(process, int(code[1]), source, time=line.time)
            if line.word == "RUNNING AT":
                self._hydra.append(replace(death, among=death.signal in (6, 9)))
                return
        elif found := _MPI_ABORT.search(text):
            named = next(filter(None, found.groups()), None)
            process = Process(int(named)) if named else process
            death = replace(death, process=process, text="it called MPI_Abort")
        elif code and (found := _MPI_NAME.search(text)):
            death = _ended(Process(int(found[1])), int(code[1]), source, time=line.time)
        else:
            return
        rank = None if self._job.launchers else death.process.rank
        yield replace(death, process=replace(death.process, rank=rank))

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
        for pid, (line, number) in (agent.closed | agent.forced).items():
            text = "it did not end at SIGTERM" if pid in agent.forced else ""
            yield Death(named(pid, line), "signal", self._log.source(line), line.time,
                        signal=number, by="launcher", text=text)  # fmt: skip

    def _first_rank(self, agent: _Agent, job: _Job) -> int | None:
        """Returns the global rank of an agent's local rank 0; None if it is unknown.

        Its table says it. Without a table it is 0 if the agent has as many processes as the job, or
        if the ranks with lines in the file are numbered exactly like its processes.
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
        spoke = {process.rank for process in self._log.speakers if process.rank is not None}
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


def _verdict_of_run(found: re.Match[str] | None, source: Source) -> Stop | None:
    """Returns the ranks that a sentence of `oddrank run` names; None if it names none."""
    if not found or not found["text"] or _NAMES_NOBODY.search(found["text"]):
        return None
    named = tuple(Process(rank, found["host"]) for rank in ranks_of(found["named"]))
    return Stop("oddrank run", source, why=found["text"], named=named)


_NAMES_NOBODY = re.compile("does not tell|can't be told|nothing says why")
_OF_RUN = re.compile(
    r"oddrank: (?:corrected: )?(?:(?P<text>ranks? (?P<named>\d[\d, -]*)(?:(?<= )\("
    r"(?P<host>[^),]+).*?\))?(?:'s .{1,60}?)? ?\b(?:is|are|may|was|were|has|have|raised"
    r"|died|ended|issued|wait for each other)\b.*)|went on after .*"
    r"|.* is saved: oddrank triage (?P<saved>.+)"
    r"|ends all ranks, (?P<ends>as --on-stall kill asks))"
)
_Take: TypeAlias = Callable[[_Reader, re.Match[str], Line, Source], Iterator[Fact]]
# The first that a line fits counts.
_LINES: tuple[tuple[re.Pattern[str], _Take], ...] = (
    (_OF_RUN, _Reader._of_run),
    (re.compile(r"Received (?:Signals\.)?(\w+) death signal"),
     _Reader._told_to_end),
    (re.compile(r"srun: error: (?:Node failure on (\S+)|(\S+): .*[Nn]ode fail)"),
     _Reader._srun_node),
    (re.compile(r"srun: error: (\S+): tasks? ([\d,\- \[\]]+): (.+)"), _Reader._tasks),
    (re.compile(r"slurmstepd(?:.*(\*\*\* (?:JOB|STEP) \S+ ON \S+ CANCELLED AT \S+?"
                r"(?: DUE TO (.+?))? \*\*\*))?"), _Reader._slurmstepd),
    # Messages of PBS and LSF on a job that they end. They have other names for a time limit, too.
    (re.compile(r"(?:(?P<pbs>PBS)|TERM_\w+): job killed(?:: | after reaching LSF | )?(?P<why>.*?)"
                r"\.?$|Job exceeded its (?P<torque>walltime) limit"), _Reader._over_limit),
    *((pattern, _Reader._ended) for pattern in _ENDS),
    (_DEEPSPEED, _Reader._deepspeed),
    (re.compile(r"running low on memory|memory pressure \(OOM\)"), _Reader._of_memory),
    (re.compile(r"Peer host:(.*)"), _Reader._peer),
    (re.compile("|".join(_OF_RAY)), _Reader._ray),
)  # fmt: skip


def _is_error_file(item: Item) -> bool:
    head = item.head
    other = b'"extraInfo"' in head or b'"py_callstack"' in head
    return other and head.lstrip()[:1] == b"{" and b'"message"' in head


def _error_file(item: Item, content: dict[str, Any]) -> Iterator[Fact]:
    told = content["message"]
    extra = told.get("extraInfo", {}) if isinstance(told, dict) else {}
    text = str(told.get("message", "") if isinstance(told, dict) else told)
    source = Source(item.name)
    if "timestamp" in extra and "py_callstack" not in extra:  # oddrank left its sentence there
        if stop := _verdict_of_run(_OF_RUN.match(f"oddrank: {text}"), source):
            yield stop
        return
    stack, stamp = str(extra.get("py_callstack", "")), unix_time(extra.get("timestamp"))
    site, _ = tracebacks.parse(stack.splitlines()[:10_000])
    stopped = "SignalException" in text
    # `oddrank collect` names its copies by the rank.
    rank = rank_in_name(item.name.rpartition("/")[2]) if item.rank is None else item.rank
    process = Process(rank, label=item.label)
    yield Death(
        process, "signal" if stopped else "exception", source, stamp, coarse=True,
        signal=15 if stopped else None, by="launcher" if stopped else "",
        text="" if stopped else text[:2000], site=site,
    )  # fmt: skip


def _read(items: Sequence[Item], notes: Notes) -> Iterable[Fact]:
    for item in items:
        if _is_error_file(item):
            yield from of_json(item, notes, partial(_error_file, item), most=4 << 20)
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


KIND = Kind(
    "launcher", False,
    lambda item: _is_error_file(item) or log_lines.has(item, "launcher", "told", "world"), _read,
)  # fmt: skip
