"""Scores `oddrank run`: whom does it name while real jobs go wrong, and does it name nobody else?

Small trainings over gloo under torchrun, the faults of benchmarks/triage/hang_table.py and more:
the launcher, guards or the judge are killed, a node is stopped or cut off, healthy jobs pause.
right, wrong, unknown: as the scorer of hangs counts. kind: right ones with the right cause.
archive: right ones of which `oddrank triage` says the same from the evidence that was saved.
told_s: median seconds from the fault to the sentence; --stall is 3 s.
"""

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "triage"))
sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
import hang_job
from hang_score import judge, named_in
from hang_table import BY_NAME, FAULTS, HEALTHY, PAUSES, Case, plan_case

import harness
from netns import two_hosts
from run.watched_job import watched_job

STALL = 3.0
# The judge waits ten times as long where ranks work, or nobody can be named.
_SECONDS = 240.0
_PROGRAM = (
    "-m", "oddrank", "run", "--stall", f"{STALL}s", "--json", "{folder}/report.json",
    "--output", "{folder}/evidence",
)  # fmt: skip
_SEED = 18
_NOBODY: dict[str, Any] = {"ranks": [], "accept": [], "accept_cycle": [], "kinds": []}


@dataclass(frozen=True)
class Said:
    """What was said of one job. archive: None if nothing was to be saved."""

    outcome: str
    kind: bool
    text: str
    seconds: float
    archive: bool | None = None


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


def events(report: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = report["data"]["run"]["history"] if report else []
    return found


def told(file: Path, truth: dict[str, Any]) -> Said:
    """Waits for a verdict and the evidence; compares both with the truth."""
    began = time.time()
    wait(lambda: (report := read(file)) and report["data"]["run"]["evidence"])
    report = read(file)
    if not events(report):
        return Said("unknown", False, f"nothing was said for {_SECONDS:g} s", _SECONDS)
    outcome, kind = judge(truth, named_in(report, {}))
    evidence = report["data"]["run"]["evidence"]
    archive = bool(evidence) and judge(truth, named_in(triaged(evidence["folder"]), {})) == (
        outcome, kind,
    )  # fmt: skip
    return Said(outcome, kind, report["summary"], events(report)[0]["time"] - began, archive)


def triaged(folder: str) -> dict[str, Any]:
    ask = [sys.executable, "-m", "oddrank", "triage", "--json", "-", folder]
    done = subprocess.run(ask, stdout=subprocess.PIPE, timeout=_SECONDS, check=False)
    with suppress(ValueError):
        made: dict[str, Any] = json.loads(done.stdout)
        return made
    return {}


def at_fault(case: Case) -> Said:
    with hang_job.start(case, _PROGRAM) as job:
        hang_job.wait_until_it_trains(job)
        hang_job.let_fault_happen(job)
        return told(job.folder / "report.json", case.truth())


def healthy(case: Case, harm: Callable[[hang_job.Job], None] = lambda _: None) -> Said:
    """Lets a job pause, or loses something that it does not need; it must end as if alone."""
    with hang_job.start(case, _PROGRAM) as job:
        hang_job.wait_until_it_trains(job)
        began = time.monotonic()
        harm(job)
        hang_job.let_fault_happen(job)
        hang_job.wait_for_progress(job)
        (job.folder / "stop").touch()
        wait(lambda: not job.mark.living())
        report = read(job.folder / "report.json")
        outcome, kind = judge(_NOBODY, named_in(report, {}))
        if any(event["event"] in ("stall", "death") for event in events(report)):
            outcome, kind = "wrong", False
        return Said(outcome, kind, report.get("summary", ""), time.monotonic() - began)


def kill(name: str) -> Callable[[hang_job.Job], None]:
    def harm(job: hang_job.Job) -> None:
        for one in [one for one in job.mark.living() if one.name == name]:
            os.kill(one.pid, signal.SIGKILL)

    return harm


def kill_launcher(job: hang_job.Job) -> None:
    os.kill(job.launcher.pid, signal.SIGKILL)


@contextmanager
def two_nodes() -> Iterator[tuple[Any, Any]]:
    with two_hosts() as hosts, watched_job(hosts=hosts, stall=STALL, on_stall="collect") as job:
        for rank in range(4):
            job.pid(rank)
        time.sleep(2 * STALL)
        yield hosts, job


def truth_of_node(*kinds: str) -> dict[str, Any]:
    return {"ranks": [2, 3], "accept": [2, 3], "accept_cycle": [], "kinds": list(kinds)}


def stopped_node() -> Said:
    with two_nodes() as (hosts, job):
        listed = ["ip", "netns", "pids", hosts[1].namespace]
        inside = subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split()
        for pid in inside:
            os.kill(int(pid), signal.SIGSTOP)
        try:
            return told(job.folder / "report.json", truth_of_node("unreachable", "host-stopped"))
        finally:
            for pid in inside:
                os.kill(int(pid), signal.SIGCONT)


def cut_link() -> Said:
    with two_nodes() as (hosts, job):
        hosts[1].cut()
        return told(job.folder / "report.json", truth_of_node("unreachable"))


def rank_0_killed(number: int) -> Said:
    return at_fault(replace(plan_case(BY_NAME["killed"], number, _SEED), ranks=(0,)))


def kinds() -> dict[str, Callable[[int], Said]]:
    """Returns the faults: name -> a function of the run's number."""

    def of_table(name: str) -> Callable[[int], Said]:
        return lambda number: at_fault(plan_case(BY_NAME[name], number, _SEED))

    def of_pause(name: str) -> Callable[[int], Said]:
        return lambda number: healthy(plan_case(BY_NAME[name], number, _SEED))

    def of_loss(harm: Callable[[hang_job.Job], None]) -> Callable[[int], Said]:
        return lambda number: healthy(plan_case(HEALTHY, number, _SEED), harm)

    return {
        **{fault.name: of_table(fault.name) for fault in FAULTS if fault.hangs},
        "rank-0-killed": rank_0_killed,
        "node-stopped": lambda _: stopped_node(),
        "link-cut": lambda _: cut_link(),
        "launcher-killed": of_loss(kill_launcher),
        "guards-killed": of_loss(kill("oddrank-guard")),
        "judge-killed": of_loss(kill("oddrank-judge")),
        **{fault.name: of_pause(fault.name) for fault in PAUSES},
        "healthy": of_loss(lambda _: None),
    }


def row(name: str, run: Callable[[int], Said], repetitions: int) -> dict[str, float | str]:
    said = []
    for number in range(repetitions):
        said.append(run(number))
        print(f"{name} {number}: {said[-1].outcome}: {said[-1].text}", file=sys.stderr, flush=True)
    right = [one for one in said if one.outcome == "right"]
    return {
        "fault": name,
        "runs": len(said),
        **{outcome: sum(one.outcome == outcome for one in said)
           for outcome in ("right", "wrong", "unknown")},
        "kind": sum(one.kind for one in right),
        "archive": sum(bool(one.archive) for one in right),
        "told_s": round(statistics.median(one.seconds for one in said), 1),
    }  # fmt: skip


def main() -> None:
    parser = harness.parser(__doc__ or "", default_repetitions=1)
    parser.add_argument("--only", nargs="+", metavar="FAULT", help="only these")
    arguments = parser.parse_args()
    chosen = kinds()
    if unknown := set(arguments.only or ()) - set(chosen):
        parser.error(f"{', '.join(sorted(unknown))}: not in {', '.join(chosen)}")
    rows = [row(name, chosen[name], arguments.repetitions) for name in arguments.only or chosen]
    harness.report("run/faults", rows, arguments.json)


if __name__ == "__main__":
    main()
