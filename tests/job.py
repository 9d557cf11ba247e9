"""Real jobs under real launchers, for tests: start, hurt, read the verdict, see that all is gone.

verdict = job(ranks=4, inject="stop:rank=2,stage=collectives", deadline=10)
assert verdict.names(rank=2, stage="collectives")
assert verdict.gone()
"""

import json
import os
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from launchers import LAUNCHERS, RANK_VARIABLES, Launcher, Order
from netns import PATH, Host
from oddrank.finding import SCHEMA_FILE
from ports import held_port

_MARK = "ODDRANK_TEST_JOB"
# Between the start of a rank's process and the moment from which it counts its deadline.
_START_SECONDS = 1.0
_AFTER_DEADLINE = 2.0
# The launchers are not ours: torchrun takes its time to print and to leave.
_LAUNCHER_SECONDS = 20.0


@dataclass(frozen=True)
class Verdict:
    """What a job said and left behind."""

    report: dict[str, Any] | None
    output: str
    seconds: float
    codes: tuple[int | None, ...]  # of the launchers; None: had to be killed
    left: tuple[str, ...]  # processes of the job that outlived deadline + 2 s

    def names(self, *, rank: int | Sequence[int], stage: str) -> bool:
        """Whether it names exactly these ranks, each in this stage."""
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
    """A job that runs: for tests that hurt it from outside."""

    mark: str
    launchers: list[subprocess.Popen[bytes]]
    spared: set[int] = field(default_factory=set)

    def ports_of(self, rank: int) -> set[int]:
        """Of the TCP connections that the processes of a rank have, in their network namespace."""
        ports: set[int] = set()
        for pid, env in _marked(self.mark):
            if _rank(env) == str(rank):
                with suppress(OSError):
                    ports |= _ports(Path("/proc", str(pid)))
        return ports

    def pid_of(self, rank: int) -> int:
        """Of the process that measures: the rank's guards are its children."""
        ranks = {pid for pid, env in _marked(self.mark) if _rank(env) == str(rank)}
        (worker,) = (pid for pid in ranks if _parent(pid) not in ranks)
        return worker

    def signal_node(self, node: int, number: signal.Signals) -> None:
        """The launcher of a node and its ranks, but not their guards: they are what is tested."""
        agent = self.launchers[node].pid
        ranks = [pid for pid, _ in _marked(self.mark) if _parent(pid) == agent]
        if number == signal.SIGSTOP:
            self.spared.add(agent)  # stopped by us: it cannot end by itself
        for pid in (agent, *ranks):
            os.kill(pid, number)


def job(
    ranks: int = 4,
    nodes: int = 1,
    *,
    inject: str = "",
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
) -> Verdict:
    """Runs oddrank on `ranks` ranks. `nodes` launchers share them equally, on `hosts` where given.

    master: another MASTER_ADDR than the first host's address. launcher: see launchers.py and
    slurm.py. absent: ranks that are never started (env).
    local_ranks: other LOCAL_RANKs than due. act: called once the text `after` was printed.
    """
    mark = uuid.uuid4().hex
    with tempfile.TemporaryDirectory(prefix="oddrank-job-") as folder, held_port() as port:
        report, output = Path(folder, "report.json"), Path(folder, "output")
        tool = ["-m", "oddrank", *command, "--deadline", str(deadline), "--json", str(report)]
        base = {
            **os.environ,
            "PATH": PATH,
            "OMP_NUM_THREADS": "1",
            _MARK: mark,
            **({"ODDRANK_TESTING": "1", "ODDRANK_INJECT": inject} if inject else {}),
            **(environ or {}),
        }
        first = master or (hosts[0].address if hosts else "127.0.0.1")
        start = LAUNCHERS[launcher] if isinstance(launcher, str) else launcher
        plan = start(Order(tool, ranks, nodes, (first, port), base, local_ranks or {}, absent))
        with output.open("wb") as file:
            launchers = [
                subprocess.Popen(
                    (hosts[node].prefix if hosts else []) + line,
                    stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=variables, cwd=folder,
                )
                for node, line, variables in plan
            ]  # fmt: skip
            live = Live(mark, launchers)
            began = time.monotonic()
            try:
                left = _watch(live, deadline, output, after, act)
                codes = tuple(_wait(one, one.pid in live.spared) for one in launchers)
            finally:
                _kill_all(mark)
        said = json.loads(report.read_text()) if report.exists() else None
        if said is not None:
            _validate(said)
        text = output.read_text(errors="replace")
        return Verdict(said, text, time.monotonic() - began, codes, left)


def _validate(said: dict[str, Any]) -> None:
    """Against the schema; a GPU machine without a network may lack the package for it."""
    with suppress(ModuleNotFoundError):
        import jsonschema

        jsonschema.validate(said, json.loads(SCHEMA_FILE.read_text()))


def _watch(
    live: Live, deadline: float, output: Path, after: str, act: Callable[[Live], None] | None
) -> tuple[str, ...]:
    """Until all processes of the ranks are gone; those that are not by deadline + 2 s."""
    limit = time.monotonic() + 60  # for the launchers to start anything
    seen: set[int] = set()
    while True:
        ranks = [(pid, env) for pid, env in _marked(live.mark) if _rank(env) is not None]
        new = {pid for pid, _ in ranks} - seen
        if new:
            seen |= new
            limit = time.monotonic() + _START_SECONDS + deadline + _AFTER_DEADLINE
        if act is not None and after in output.read_text(errors="replace"):
            act(live)
            act = None
        ended = all(one.poll() is not None or one.pid in live.spared for one in live.launchers)
        if not ranks and (ended or time.monotonic() > limit):
            return ()
        if ranks and time.monotonic() > limit:
            return tuple(_describe(pid, env) for pid, env in ranks)
        time.sleep(0.1)


def _marked(mark: str) -> list[tuple[int, dict[str, str]]]:
    """Living processes with the mark in their environment, which forks and execs inherit."""
    needle = f"{_MARK}={mark}".encode()
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with suppress(OSError):  # ended, or a zombie
                text = Path(entry.path, "environ").read_bytes()
                if needle in text:
                    pairs = (
                        pair.partition("=") for pair in text.decode(errors="replace").split("\0")
                    )
                    found.append((int(entry.name), {name: value for name, _, value in pairs}))
    return found


def _rank(env: Mapping[str, str]) -> str | None:
    return next((env[name] for name in RANK_VARIABLES if name in env), None)


def _describe(pid: int, env: Mapping[str, str]) -> str:
    with suppress(OSError):
        name = Path(f"/proc/{pid}/comm").read_text().strip()
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return f"rank {_rank(env)}: pid {pid} {name} {state}"
    return f"rank {_rank(env)}: pid {pid}"


def _ports(process: Path) -> set[int]:
    own: set[str] = set()
    for link in (process / "fd").iterdir():
        with suppress(OSError):  # closed since
            own.add(os.readlink(link))
    lines = (process / "net/tcp").read_text().splitlines()[1:]
    rows = [line.split() for line in lines]
    return {int(row[1].rpartition(":")[2], 16) for row in rows if f"socket:[{row[9]}]" in own}


def _parent(pid: int) -> int:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def _wait(launcher: subprocess.Popen[bytes], stopped: bool) -> int | None:
    try:
        return launcher.wait(0 if stopped else _LAUNCHER_SECONDS)
    except subprocess.TimeoutExpired:
        launcher.kill()
        launcher.wait(5)
        return None


def _kill_all(mark: str) -> None:
    for pid, _ in _marked(mark):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
