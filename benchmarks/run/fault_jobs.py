"""Runs one real job under `oddrank run`, with a fault or a pause, and checks the reports.

Every version of the report counts: a wrong name that another sentence replaces is still wrong.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "triage"))
sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
import hang_job
from hang_score import judge, named_in
from hang_table import Case

import slurm
from launchers import Order, Plan, torchrun
from netns import Host, network
from processes import Process
from run.watched_job import watched_job

STALL = 3.0
# Only ends a hang. The judge waits ten times --stall if ranks work, or no rank can be named.
_SECONDS = 400.0
# After a verdict on a death: the launcher ends the other ranks, which must change nothing.
_SETTLE_SECONDS = 20.0
_NODES, _RANKS_A_NODE = 3, 2
# A guard is silent after 30 s; no stall may be reported without a name before that.
_NODE_STALL = 10.0
_NOBODY: dict[str, Any] = {"ranks": [], "accept": [], "accept_cycle": [], "kinds": []}
_BAD = ("stall", "death")


@dataclass(frozen=True)
class Said:
    """The report on one job. kind: it is right, and so is the cause.

    saved: `oddrank triage` names the same ranks and causes from the saved files; None: nothing was
    to be saved. seconds: from the fault to the sentence; without a fault, until the job ended.
    """

    outcome: str
    text: str
    kind: bool = False
    seconds: float = 0.0
    saved: bool | None = None


def program(stall: float) -> tuple[str, ...]:
    return (
        "-m", "oddrank", "run", "--stall", f"{stall:g}s", "--json", "{folder}/report.json",
        "--output", "{folder}/evidence",
    )  # fmt: skip


def read(file: Path) -> dict[str, Any]:
    with suppress(FileNotFoundError):
        made: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return made
    return {}


def wait(true: Callable[[], object], seconds: float = _SECONDS) -> bool:
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.1)
    return bool(true())


def events(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = report["data"]["run"]["history"] if report else []
    return found


def told(
    file: Path,
    truth: Mapping[str, Any],
    *,
    over: Callable[[], bool] = lambda: True,
) -> Said:
    """Waits for a verdict and its evidence, then for over(); compares all that was said."""
    began = time.time()
    wrong: list[str] = []
    report: dict[str, Any] = {}

    def look() -> bool:
        nonlocal report
        report = read(file)
        if report and judge(truth, named_in(report, {}))[0] == "wrong":
            wrong.append(report["summary"])
        return bool(report and report["data"]["run"]["evidence"])

    wait(look)
    if not events(report):
        return Said("unknown", f"nothing was said for {_SECONDS:g} s", seconds=_SECONDS)
    wait(lambda: look() and over(), _SETTLE_SECONDS)
    outcome, kind = judge(truth, named_in(report, {}))
    text, seconds = report["summary"], events(report)[0]["time"] - began
    saved = None
    if evidence := report["data"]["run"]["evidence"]:
        offline = triaged(evidence["folder"])
        saved = same(truth, report, offline)
        text += "" if saved else f" | from what was saved: {offline.get('summary')}"
    if wrong:
        return Said("wrong", wrong[0], seconds=seconds, saved=saved)
    return Said(outcome, text, kind, seconds, saved)


def same(truth: Mapping[str, Any], live: Mapping[str, Any], offline: Mapping[str, Any]) -> bool:
    """Returns whether two reports name the same ranks by the same causes, or by accepted ones.

    The saved evidence of nodes that share a machine may have more: the state of a rank with a
    silent guard.
    """
    before, after = named_in(live, {}), named_in(offline, {})
    causes = [{one.cause for one in said if one.ranks} for said in (before, after)]
    ranks = [frozenset[int]().union(*(one.ranks for one in said)) for said in (before, after)]
    accepted = bool(ranks[0]) and all(
        judge(truth, said) == ("right", True) for said in (before, after)
    )
    return ranks[0] == ranks[1] and (causes[0] == causes[1] or accepted)


def triaged(folder: str) -> dict[str, Any]:
    ask = [sys.executable, "-m", "oddrank", "triage", "--json", "-", folder]
    done = subprocess.run(ask, capture_output=True, timeout=_SECONDS, check=False)
    with suppress(ValueError):
        made: dict[str, Any] = json.loads(done.stdout)
        return made
    return {}


def at_fault(case: Case) -> Said:
    """A job of the benchmark of hangs, with its fault."""
    with hang_job.start(case, program(STALL)) as job:
        if case.fault == "out-of-memory" and not job.config["memory_cgroup"]:
            raise hang_job.CaseFailed("no memory cgroup can be made here")
        hang_job.wait_until_it_trains(job)
        hang_job.let_fault_happen(job)
        file = job.folder / "report.json"

        def over() -> bool:
            """A death ends the job: the others' ends must not change the verdict."""
            return events(read(file))[0]["event"] != "death" or not job.mark.living()

        return told(file, case.truth(), over=over)


def healthy(
    case: Case,
    harm: Callable[[hang_job.Job], None] | None = None,
    *,
    stall: float = STALL,
    survives: bool = True,
) -> Said:
    """Lets a job pause, or lose something that it does not need; it must end as if alone.

    survives: its launcher does.
    """
    with hang_job.start(case, program(stall)) as job:
        hang_job.wait_until_it_trains(job)
        began = time.monotonic()
        if harm is not None:
            harm(job)
        hang_job.let_fault_happen(job)
        hang_job.wait_for_progress(job)
        (job.folder / "stop").touch()
        ended = wait(lambda: not job.mark.living())
        seconds, report = time.monotonic() - began, read(job.folder / "report.json")
        said = [line for line in _log(job).splitlines() if "oddrank: " in line]
        text = said[0] if said else str(report.get("summary", "no report"))
        bad = [event for event in events(report) if event["event"] in _BAD]
        if bad or judge(_NOBODY, named_in(report, {}))[0] == "wrong":
            return Said("wrong", text, seconds=seconds)
        code = job.launcher.wait() if ended else None
        as_alone = ended and not said and code == (0 if survives else -signal.SIGKILL)
        as_alone = as_alone and (harm is not None or report.get("verdict") == "healthy")
        if not as_alone:
            return Said("failed", f"{text} (exit code {code})", seconds=seconds)
        return Said("right", text, kind=True, seconds=seconds)


def _log(job: hang_job.Job) -> str:
    return (job.folder / "torchrun" / "torchrun.log").read_text(errors="replace")


def kill(name: str) -> Callable[[hang_job.Job], None]:
    """Returns a function that kills all of a job's processes of this name."""

    def harm(job: hang_job.Job) -> None:
        found = [one for one in job.mark.living() if one.name == name]
        if not found:
            raise hang_job.CaseFailed(f"{job.case.name}: there is no {name} to kill")
        for one in found:
            os.kill(one.pid, signal.SIGKILL)

    return harm


def kill_launcher(job: hang_job.Job) -> None:
    job.launcher.kill()


def stuck(**how: Any) -> Said:
    """A rank of tests/run/training.py waits for ever in its own code, under any launcher."""
    with watched_job("event", on_stall="collect", **how) as job:
        wait((job.folder / "fault").exists)
        truth = _truth([how["rank"]], "host-stuck")
        return told(job.folder / "report.json", truth)


def stuck_under_srun() -> Said:
    with slurm.two_nodes() as cluster:
        return stuck(rank=3, launcher=cluster.srun(), hosts=cluster.hosts)


def stopped_node() -> Said:
    with _nodes() as (host, job):
        listed = ["ip", "netns", "pids", host.namespace]
        inside = subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split()
        for pid in inside:
            os.kill(int(pid), signal.SIGSTOP)
        try:
            return told(job.folder / "report.json", _of_last_node("unreachable", "host-stopped"))
        finally:
            for pid in inside:
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGCONT)


def cut_link() -> Said:
    with _nodes() as (host, job):
        host.cut()
        return told(job.folder / "report.json", _of_last_node("unreachable"))


@contextmanager
def _nodes() -> Iterator[tuple[Host, Any]]:
    """Yields the last of three nodes, and a healthy job on all of them."""
    ranks = _NODES * _RANKS_A_NODE
    how: dict[str, Any] = {"ranks": ranks, "stall": _NODE_STALL, "on_stall": "collect"}

    def apart(order: Order) -> Plan:
        """Plans a torchrun a node. No node sees the records of another, as on real ones."""
        return [
            (node, [*net.hosts[node].prefix, *line], own | {
                "GLOO_SOCKET_IFNAME": net.hosts[node].interface,
                "ODDRANK_DIR": f"{own['ODDRANK_DIR']}-{node}",
            })
            for node, line, own in torchrun(order)
        ]  # fmt: skip

    with network(_NODES) as net, watched_job(launcher=apart, hosts=net.hosts, **how) as job:
        wait((job.folder / "fault").exists)
        # The judge of a job may not know ranks of other hosts yet: their guards load torch first.
        wait(lambda: sum(map(_is_connected, job.processes("oddrank-guard"))) == ranks)
        time.sleep(1.0)
        yield net.hosts[-1], job


def _is_connected(guard: Process) -> bool:
    links = Path(f"/proc/{guard.pid}/fd").iterdir()
    with suppress(OSError):
        return any(os.readlink(link).startswith("socket:") for link in links)
    return False


def _of_last_node(*kinds: str) -> dict[str, Any]:
    world = _NODES * _RANKS_A_NODE
    return _truth(range(world - _RANKS_A_NODE, world), *kinds)


def _truth(ranks: Sequence[int], *kinds: str) -> dict[str, Any]:
    return {"ranks": [*ranks], "accept": [*ranks], "accept_cycle": [], "kinds": [*kinds]}
