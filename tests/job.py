"""Runs real jobs: injects faults, reads verdicts, checks for leftovers.

Ranks are forked from a warm parent (forked.py), with the environment of a launcher. A real
torchrun, srun or mpirun starts them only where it is under test.

verdict = job(ranks=4, stop=2, at="collectives", deadline=10)
assert verdict.names(rank=2, stage="collectives")
assert verdict.gone()
"""

import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import forked
from launchers import LAUNCHERS, RANK_VARIABLES, Launcher, Order
from netns import PATH, Host
from oddrank.marker.warm import Forked
from patience import PATIENCE
from processes import Marked, Process, held_port, injected
from reports import valid

# Allowance from the start of a rank's process to the start of its deadline.
_START_SECONDS = 1.0
_AFTER_DEADLINE = 2.0


@dataclass(frozen=True)
class Verdict:
    """A job's output, report, exit codes and leftovers."""

    report: dict[str, Any] | None
    output: str
    seconds: float
    codes: tuple[int | None, ...]  # the launchers' exit codes; None if the test had to kill it
    left: tuple[str, ...]  # processes of the job that outlived deadline + 2 s

    def names(self, *, rank: int | Sequence[int], stage: str) -> bool:
        """Returns whether the report names exactly these ranks, each in this stage."""
        ranks = {rank} if isinstance(rank, int) else set(rank)
        findings = (self.report or {}).get("findings", [])
        named = {r for finding in findings for r in finding["who"]["ranks"]}
        return named == ranks and all(finding["stage"] == stage for finding in findings)

    def healthy(self) -> bool:
        return self.report is not None and self.report["verdict"] == "healthy"

    def gone(self) -> bool:
        return not self.left

    @property
    def causes(self) -> set[str]:
        return {finding["cause"] for finding in (self.report or {}).get("findings", [])}

    def __str__(self) -> str:
        summary = self.report["summary"] if self.report else "no report"
        return f"{summary} (codes {self.codes}, left {list(self.left)})\n{self.output[-6000:]}"


@dataclass
class Live:
    """A running job, for tests that break it from outside."""

    mark: Marked
    launchers: list["subprocess.Popen[bytes] | Forked"]
    nodes: list[int]  # each launcher's node
    spared: set[int] = field(default_factory=set)

    def ports_of(self, rank: int) -> set[int]:
        """Returns the ports of all TCP connections of a rank, in its network namespace."""
        ports: set[int] = set()
        for process in self._of(rank):
            with suppress(OSError):
                ports |= _ports(Path("/proc", str(process.pid)))
        return ports

    def pid_of(self, rank: int) -> int:
        """Returns the pid of the rank that measures; its guards are its children."""
        ranks = self._of(rank)
        pids = {process.pid for process in ranks}
        (worker,) = (process.pid for process in ranks if process.parent not in pids)
        return worker

    def signal_node(self, node: int, number: signal.Signals) -> None:
        """Signals a node's launcher and ranks, but not their guards, which are under test."""
        pids = {one.pid for one, at in zip(self.launchers, self.nodes, strict=True) if at == node}
        living = self.mark.living()
        agents = {one.pid for one in living if one.pid in pids and _rank(one) is None}
        # torchrun's process that forks the workers
        agents |= {one.pid for one in living if one.parent in agents and _rank(one) is None}
        pids |= {process.pid for process in living if process.parent in agents}
        if number == signal.SIGSTOP:
            self.spared |= pids  # stopped by us: they cannot end by themselves
        for pid in pids:
            os.kill(pid, number)

    def _of(self, rank: int) -> list[Process]:
        return [process for process in self.mark.living() if _rank(process) == str(rank)]


def job(
    ranks: int = 4,
    nodes: int = 1,
    *,
    inject: str = "",
    at: str = "",
    deadline: float = 10,
    command: Sequence[str] = ("selftest",),
    hosts: Sequence[Host] = (),
    master: str = "",
    launcher: str | Launcher = "torchrun",
    absent: Sequence[int] = (),
    local_ranks: Mapping[int, int] | None = None,
    environ: Mapping[str, str] | None = None,
    after: str = "",
    act: Callable[[Live], None] | None = None,
    fresh: bool = False,
    **faults: int,
) -> Verdict:
    """Runs oddrank on `ranks` ranks. `nodes` launchers share them equally, on `hosts` where given.

    faults: kind (kill, stop, raises, exit0, sleep, gil, segfault, value) -> rank, in stage `at`.
    inject: further faults, as in ODDRANK_INJECT.
    master: MASTER_ADDR, if not the first host's address. launcher: see launchers.py and slurm.py.
    absent: ranks that are never started (env). local_ranks: rank -> wrong LOCAL_RANK.
    act: called once the text `after` was printed. fresh: new interpreters, no forks.
    """
    mark = Marked()
    with tempfile.TemporaryDirectory(prefix="oddrank-job-") as folder, held_port() as port:
        report, output = Path(folder, "report.json"), Path(folder, "output")
        tool = ["-m", "oddrank", *command, "--deadline", str(deadline), "--json", str(report)]
        base = {
            **os.environ,
            "PATH": PATH,
            "OMP_NUM_THREADS": "1",
            **mark.environ,
            **injected(inject, at, faults),
            **(environ or {}),
        }
        first = master or (hosts[0].address if hosts else "127.0.0.1")
        start = LAUNCHERS[launcher] if isinstance(launcher, str) else launcher
        plan = start(Order(tool, ranks, nodes, (first, port), base, local_ranks or {}, absent))
        with output.open("wb") as file:
            launchers = [
                forked.popen(
                    line, env=variables, stdout=file, stderr=file, cwd=folder,
                    host=hosts[node] if hosts else None, fresh=fresh,
                )
                for node, line, variables in plan
            ]  # fmt: skip
            live = Live(mark, launchers, [node for node, _, _ in plan])
            began = time.monotonic()
            try:
                left = _watch(live, deadline, output, after, act)
                codes = tuple(_wait(one, one.pid in live.spared) for one in launchers)
            finally:
                mark.kill_all()
        said = valid(report.read_text()) if report.exists() else None
        text = output.read_text(errors="replace")
        return Verdict(said, text, time.monotonic() - began, codes, left)


def _watch(
    live: Live, deadline: float, output: Path, after: str, act: Callable[[Live], None] | None
) -> tuple[str, ...]:
    """Waits until all ranks' processes are gone; returns those left at deadline + 2 s."""
    limit = time.monotonic() + 60  # until the launchers have started a rank
    seen: set[int] = set()
    while True:
        looked = time.monotonic()  # the result is no older, even if reading takes long
        ranks = [process for process in live.mark.living() if _rank(process) is not None]
        new = {process.pid for process in ranks} - seen
        if new:
            seen |= new
            limit = time.monotonic() + _START_SECONDS + deadline + _AFTER_DEADLINE
        if act is not None and _squeezed(after) in _squeezed(output.read_text(errors="replace")):
            act(live)
            act = None
        ended = all(one.poll() is not None or one.pid in live.spared for one in live.launchers)
        if not ranks and (ended or time.monotonic() > limit):
            assert act is None, f"{after!r} was never printed: {output.read_text(errors='replace')}"
            return ()
        if ranks and looked > limit and (left := [one for one in ranks if not _is_killed(one)]):
            return tuple(map(_describe, left))
        time.sleep(0.1)


def _is_killed(process: Process) -> bool:
    """Returns whether it has only to get a core to end, or has ended."""
    with suppress(OSError):
        status = Path(f"/proc/{process.pid}/status").read_text()
        pending = re.findall(r"^(?:Sig|Shd)Pnd:\s*(\w+)", status, re.M)
        kill = 1 << (signal.SIGKILL - 1)
        return process.state == "R" and any(int(one, 16) & kill for one in pending)
    return True


def _squeezed(text: str) -> str:
    """Columns are as wide as the longest name in them."""
    return re.sub(" +", " ", text)


def _rank(process: Process) -> str | None:
    return next((process.environ[name] for name in RANK_VARIABLES if name in process.environ), None)


def _describe(process: Process) -> str:
    return f"rank {_rank(process)}: pid {process.pid} {process.name} {process.state}"


def _ports(process: Path) -> set[int]:
    own: set[str] = set()
    for link in (process / "fd").iterdir():
        with suppress(OSError):  # closed since
            own.add(os.readlink(link))
    lines = (process / "net/tcp").read_text().splitlines()[1:]
    rows = [line.split() for line in lines]
    return {int(row[1].rpartition(":")[2], 16) for row in rows if f"socket:[{row[9]}]" in own}


def _wait(launcher: "subprocess.Popen[bytes] | Forked", stopped: bool) -> int | None:
    try:
        return launcher.wait(0 if stopped else PATIENCE.limit)
    except subprocess.TimeoutExpired:
        launcher.kill()
        launcher.wait(PATIENCE.limit)
        return None
