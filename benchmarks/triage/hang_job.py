"""Runs one case: a job under torchrun, its fault, and the evidence while it hangs; ends it all.

Nothing waits without a deadline, and nothing is left running: processes are found by a mark in
their environment, mounts and cgroups are removed.
"""

import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import hang_evidence
from hang_table import BY_NAME, Case

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from dead_fuse import dead_file_system
from processes import Marked, held_port

HERE = Path(__file__).parent
_START_SECONDS = 500.0
_HANG_SECONDS = 300.0
_END_SECONDS = 120.0
# No rank's counter has moved for this long, and for 8 times the longest pause before.
_STILL_SECONDS = 2.0
# After SIGTERM torchrun waits this long for its ranks in vain: then they are killed here.
_GRACE_SECONDS = 2.0
_CGROUPS = Path("/sys/fs/cgroup/memory")
_CGROUP_BYTES = 64 << 20


class CaseFailed(Exception):
    """The fault did not come to pass, or the job did not start."""


@dataclass
class Job:
    """A running job. folder: its control folder."""

    case: Case
    folder: Path
    mark: Marked
    launcher: subprocess.Popen[bytes]
    config: dict[str, Any]
    records: Path
    pids: dict[int, int] = field(default_factory=dict)

    def counters(self) -> tuple[int, ...]:
        files = [self.folder / f"progress{rank}" for rank in range(self.case.layout.world)]
        return tuple(
            struct.unpack("Q", file.read_bytes())[0] if file.exists() else 0 for file in files
        )

    def state(self, rank: int) -> str:
        """Returns the letter of /proc/PID/stat; X: the process is gone."""
        with suppress(OSError):
            text = Path(f"/proc/{self.pids[rank]}/stat").read_text(encoding="utf-8")
            return text.rpartition(")")[2].split()[0]
        return "X"

    def alive(self, rank: int) -> bool:
        return self.state(rank) not in "XZ"


def run_case(case: Case, folder: Path) -> dict[str, Any]:
    """Runs a case, saves truth.json, run.json and the evidence in `folder`; returns run.json."""
    fault = BY_NAME[case.fault]
    began = time.monotonic()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with start(case) as job:
        wait_until_it_trains(job)
        if fault.dies:
            os.kill(job.launcher.pid, signal.SIGSTOP)
        let_fault_happen(job)
        if fault.dies and fault.kind == "dead":
            # Without a CPU, the interpreter's end takes longer than a hang takes to be seen.
            _until(lambda: not any(map(job.alive, case.ranks)), _HANG_SECONDS, job, "death")
        if fault.hangs:
            _wait_until_still(job)
        else:
            wait_for_progress(job)
        states = {rank: job.state(rank) for rank in job.pids}
        before = job.counters()
        hang_evidence.save_live(job, folder)
        moved = before != job.counters()
        _end(job, folder)
        hang_evidence.save_dead(job, folder)
    (folder / "truth.json").write_text(json.dumps(case.truth(), indent=1) + "\n", encoding="utf-8")
    facts = {
        "seconds": round(time.monotonic() - began, 1),
        "pids": job.pids,
        "states": states,
        "moved": moved,
        "forms": hang_evidence.forms_of(folder),
    }
    (folder / "run.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    return facts


def wait_until_it_trains(job: Job) -> None:
    enough = _ticks(job.case)
    _until(lambda: min(job.counters()) > enough, _START_SECONDS, job, "start")


def wait_for_progress(job: Job) -> None:
    """Waits until all ranks have gone on for some steps."""
    goal = min(job.counters()) + _ticks(job.case)
    _until(lambda: min(job.counters()) > goal, _HANG_SECONDS, job, "progress")


def let_fault_happen(job: Job) -> None:
    """Lets the culprits act as the table says; returns once they have begun."""
    fault = BY_NAME[job.case.fault]
    if fault.signal:
        for rank in job.case.ranks:
            os.kill(job.pids[rank], getattr(signal, fault.signal))
        if fault.signal == "SIGSTOP":  # without a CPU it takes a while
            _until(lambda: all(job.state(rank) == "T" for rank in job.case.ranks),
                   _HANG_SECONDS, job, "fault")  # fmt: skip
    elif job.case.ranks:
        (job.folder / "go").touch()
        acted = [job.folder / f"acted{rank}" for rank in job.case.ranks]
        _until(lambda: all(file.exists() for file in acted), _HANG_SECONDS, job, "fault")


def _ticks(case: Case) -> int:
    """Returns so many ticks of a rank's counter as the fault is surely later."""
    return 100 * (1 + case.delay)


def config_of(case: Case, memory_cgroup: str) -> dict[str, Any]:
    """Returns the ranks' settings. Variants: marks, loader, and content of flight recorders."""
    fault = BY_NAME[case.fault]
    return {
        "layout": asdict(case.layout),
        "ranks": list(case.ranks),
        "act": fault.act,
        "point": fault.point,
        "delay": case.delay,
        "loader": fault.act == "wait_for_worker" or (not fault.kind and case.delay == 1),
        "marks": case.variant == 0,
        "fr_json": case.variant == 1,
        "fr_frames": case.delay != 2,
        "fr_only_open": case.variant == 1 and case.delay == 2,
        "memory_cgroup": memory_cgroup,
    }


@contextmanager
def start(case: Case, program: Sequence[str] = ()) -> Iterator[Job]:
    """Starts a case's job. program: words before the script; {folder} is the job's folder."""
    fault = BY_NAME[case.fault]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="oddrank-hangs-")))
        for name in ("flight_recorder", "faulthandler", "checkpoints", "records", "torchrun"):
            (folder / name).mkdir(mode=0o700)
        cgroup = stack.enter_context(_memory_cgroup()) if fault.act == "grow" else ""
        if fault.needs == "fuse":
            stack.enter_context(dead_file_system(folder / "checkpoints"))
        else:
            os.mkfifo(folder / "checkpoints" / "latest.pt")
        config = config_of(case, cgroup)
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
        mark = Marked()
        port = stack.enter_context(held_port())
        with (folder / "torchrun" / "torchrun.log").open("wb") as log:
            launcher = subprocess.Popen(
                _command(case, folder, program, port), env=_environ(case, folder, mark),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        job = Job(case, folder, mark, launcher, config, folder / "records")
        stack.callback(_kill_all, job)
        _until(lambda: _read_pids(job), _START_SECONDS, job, "start")
        yield job


def _command(case: Case, folder: Path, program: Sequence[str], port: int) -> list[str]:
    logs = ["--log-dir", str(folder / "torchrun" / "logs"), "--tee", "3"]
    return [
        sys.executable, "-m", "torch.distributed.run",
        "--nproc-per-node", str(case.layout.world),
        "--master-addr", "127.0.0.1", "--master-port", str(port),
        *(logs if case.variant == 0 else []),
        *(word.replace("{folder}", str(folder)) for word in program),
        str(HERE / "small_training.py"),
    ]  # fmt: skip


def _environ(case: Case, folder: Path, mark: Marked) -> dict[str, str]:
    return {
        **os.environ,
        **mark.environ,
        "OMP_NUM_THREADS": "1",
        # An earlier job's compiled code would be found there.
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "compiled"),
        "HANGS_CONTROL": str(folder),
        "ODDRANK_DIR": str(folder / "records"),
        "ODDRANK_TRACE_MB": "0.5",
        **({"PYTHONFAULTHANDLER": "1"} if case.variant == 1 else {}),
    }


def _read_pids(job: Job) -> bool:
    for rank in range(job.case.layout.world):
        with suppress(OSError):
            job.pids[rank] = int((job.folder / f"pid{rank}").read_text(encoding="utf-8"))
    return len(job.pids) == job.case.layout.world


def _ended(job: Job) -> bool:
    return job.launcher.poll() is not None


def _until(true: Callable[[], object], seconds: float, job: Job, what: str) -> None:
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end or (what == "start" and _ended(job)):
            log = (job.folder / "torchrun" / "torchrun.log").read_text(errors="replace")
            raise CaseFailed(f"{job.case.name}: no {what} after {seconds:g} s\n{log[-4000:]}")
        time.sleep(0.02)


def _wait_until_still(job: Job) -> None:
    """Waits until no rank has moved for a while; a busy machine makes that while longer.

    Moves: its counter grows, or it runs, as an interpreter does that ends. The culprit may run.
    """
    began = moved = time.monotonic()
    longest, last = 0.0, job.counters()
    others = [rank for rank in job.pids if rank not in job.case.ranks]
    while time.monotonic() - moved < max(_STILL_SECONDS, 8 * longest):
        if time.monotonic() > began + _HANG_SECONDS:
            raise CaseFailed(f"{job.case.name}: it does not hang: {last}")
        time.sleep(0.02)
        counters = job.counters()
        if counters != last or any(job.state(rank) == "R" for rank in others):
            # The first pause may be the wait for the fault itself.
            longest, moved = max(longest, time.monotonic() - moved), time.monotonic()
            last = counters


def _end(job: Job, folder: Path) -> None:
    """Ends the job as a scheduler does. A launcher that was stopped sees the death first."""
    fault = BY_NAME[job.case.fault]
    if not fault.kind and job.case.variant == 0:
        (job.folder / "stop").touch()  # a healthy job that ends by itself
    elif fault.dies:
        os.kill(job.launcher.pid, signal.SIGCONT)
    else:
        os.kill(job.launcher.pid, signal.SIGTERM)
        end = time.monotonic() + _GRACE_SECONDS
        while time.monotonic() < end and any(map(job.alive, job.pids)):
            time.sleep(0.05)
        for rank, pid in job.pids.items():
            if job.alive(rank):
                os.kill(pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        job.launcher.wait(_END_SECONDS)


def _kill_all(job: Job) -> None:
    end = time.monotonic() + _END_SECONDS
    while job.mark.living() and time.monotonic() < end:
        job.mark.kill_all()
        time.sleep(0.05)
    with suppress(subprocess.TimeoutExpired):
        job.launcher.wait(5)


@contextmanager
def _memory_cgroup() -> Iterator[str]:
    """Yields the folder of a memory cgroup of 64 MiB; "" if none can be made here."""
    group = _CGROUPS / f"oddrank-hangs-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(_CGROUP_BYTES), encoding="utf-8")
    except OSError:
        with suppress(OSError):
            group.rmdir()
        yield ""
        return
    try:
        yield str(group)
    finally:
        with suppress(OSError):
            group.rmdir()
