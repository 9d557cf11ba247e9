"""Saves the evidence of a job: a folder a form, and `all` with all forms.

A form that a case can't give is left out: a dead process has no stack, and gloo sends no dump.
"""

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hang_watchdog
from hang_table import BY_NAME

if TYPE_CHECKING:
    from hang_job import Job

# A rank that is able to writes its dump within this time, on a machine busy with other things.
_DUMP_SECONDS = 60.0
# Time for a rank that is not expected to answer.
_MUTE_SECONDS = 1.0
# A file of stacks that has not grown for this long is complete.
_STILL_SECONDS = 3.0
_PYSPY_SECONDS = 30.0
_COLLECT_SECONDS = 120.0
# torch's own name for dumps, but for the folder.
DUMP_NAME = "comm_lib_trace_rank_"
FORMS = (
    "records",
    "flight_recorder",  # torch's pickles, as gloo makes them: without the ranks of groups
    "flight_recorder_groups",  # the same, with the ranks of groups, as NCCL's have them
    "flight_recorder_json",
    "pyspy",
    "faulthandler",
    "watchdog",
    "torchrun",
    "kernel",
    "all",
)
# These are other shapes of evidence that `all` has already.
_NOT_IN_ALL = ("flight_recorder_groups", "flight_recorder_json")


def forms_of(folder: Path) -> list[str]:
    """Returns the forms that a case has, in the order of FORMS."""
    return [form for form in FORMS if (folder / form).is_dir()]


def save_live(job: "Job", folder: Path) -> None:
    """Saves evidence that only living processes give. The least disturbing comes first."""
    if not _ends_by_itself(job):
        _records(job, folder)
    _flight_recorder(job, folder)
    _faulthandler(job, folder)
    _pyspy(job, folder)


def save_dead(job: "Job", folder: Path) -> None:
    """Saves the evidence after the end, and fills `all`."""
    if _ends_by_itself(job):
        _records(job, folder)
    shutil.copytree(job.folder / "torchrun", folder / "torchrun")
    _kernel(job, folder)
    for form in forms_of(folder):
        if form not in _NOT_IN_ALL:
            shutil.copytree(folder / form, folder / "all" / form, copy_function=os.link)


def _ends_by_itself(job: "Job") -> bool:
    return not BY_NAME[job.case.fault].kind and job.case.variant == 0


def _records(job: "Job", folder: Path) -> None:
    """Saves the records and the states of their processes, and nothing else that is collected."""
    files = [str(file) for file in sorted(job.records.rglob("*.trace"))]
    out = folder / "collected"
    command = [sys.executable, "-m", "oddrank", "collect", "-o", str(out), *files]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=_COLLECT_SECONDS)
    for file in [*out.glob("*/*/*.trace"), *out.glob("*/*/states.json")]:
        target = folder / "records" / file.relative_to(out)
        target.parent.mkdir(parents=True, exist_ok=True)
        file.replace(target)
    shutil.rmtree(out)


def _flight_recorder(job: "Job", folder: Path) -> None:
    """Asks all ranks for their dumps, and saves them in three shapes."""
    (job.folder / "dump").touch()
    dumps = job.folder / "flight_recorder"
    _await(job, "flight_recorder", lambda rank: (dumps / f"pickle{rank}").exists())
    more = {}
    for rank in range(job.case.layout.world):
        pickled = dumps / f"pickle{rank}"
        if not pickled.exists():
            continue
        name, made = f"{DUMP_NAME}{rank}", pickled.stat().st_mtime_ns
        _save(folder / "flight_recorder" / name, pickled.read_bytes(), made)
        text = dumps / f"json{rank}"
        if text.exists():
            target = folder / "flight_recorder_json" / f"{name}.json"
            _save(target, text.read_bytes(), text.stat().st_mtime_ns)
        more[rank] = json.loads((dumps / f"more{rank}").read_text(encoding="utf-8"))
        dump = pickle.loads(pickled.read_bytes())  # our own rank's
        more[rank]["dump"] = dump
        known = {**dump, "pg_config": more[rank]["groups"]}
        _save(folder / "flight_recorder_groups" / name, pickle.dumps(known, protocol=2), made)
    fault = BY_NAME[job.case.fault]
    if fault.hangs and not fault.dies:
        lines = hang_watchdog.lines(more, newest=job.case.variant == 0)
        if lines:
            _save(folder / "watchdog" / "train.log", "".join(lines).encode())


def _faulthandler(job: "Job", folder: Path) -> None:
    """Has each rank's faulthandler dump all threads, at a signal that needs no GIL."""
    files = job.folder / "faulthandler"
    for rank in filter(job.alive, job.pids):
        os.kill(job.pids[rank], signal.SIGUSR1)
    sizes: dict[int, tuple[int, float]] = {}

    def written(rank: int) -> bool:
        """The main thread is dumped last, to its outermost frame; it has none while it exits."""
        text, now = (files / f"rank{rank}").read_bytes(), time.monotonic()
        if sizes.get(rank, (-1, now))[0] != len(text):
            sizes[rank] = len(text), now
        return b" in <module>\n" in text or (text != b"" and now > sizes[rank][1] + _STILL_SECONDS)

    _await(job, "faulthandler", written)
    texts = {rank: (files / f"rank{rank}").read_text(encoding="utf-8") for rank in sorted(job.pids)}
    _stacks(folder / "faulthandler", texts, job, "[rank{}]:")


def _pyspy(job: "Job", folder: Path) -> None:
    """Runs py-spy on each rank, in half of the cases with native frames.

    It can't stop a rank that is stopped already, or that a dead disk holds; nor unwind it then.
    """
    texts = {}
    program = shutil.which("py-spy", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    for rank in filter(job.alive, job.pids if program else ()):
        command = [str(program), "dump", "--pid", str(job.pids[rank])]
        if job.state(rank) in "TD":
            command.append("--nonblocking")
        elif job.case.variant == 1:
            command.append("--native")
        with suppress(subprocess.TimeoutExpired):
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_PYSPY_SECONDS, check=False
            )
            texts[rank] = done.stdout
    _stacks(folder / "pyspy", texts, job, "{}: ")


def _stacks(target: Path, texts: dict[int, str], job: "Job", prefix: str) -> None:
    """Saves a file a rank, or one file with the prefix that a launcher puts before each line."""
    texts = {rank: text for rank, text in texts.items() if text}
    if job.case.variant == 0:
        for rank, text in texts.items():
            _save(target / f"rank{rank}.txt", text.encode())
    elif texts:
        lines = [
            prefix.format(rank) + line + "\n"
            for rank, text in texts.items()
            for line in text.splitlines()
        ]
        _save(target / "stacks.txt", "".join(lines).encode())


def _kernel(job: "Job", folder: Path) -> None:
    """Saves the kernel's lines about this job's processes, if root may read them."""
    fault = BY_NAME[job.case.fault]
    with suppress(OSError, subprocess.SubprocessError):
        text = subprocess.run(
            ["dmesg"], capture_output=True, text=True, timeout=10, check=True
        ).stdout
        ours = [f"[{pid}]" for pid in job.pids.values()]
        ours += [f" {pid} (" for pid in job.pids.values()]
        ours += [f",pid={pid}," for pid in job.pids.values()]
        # An earlier process may have had the same pid.
        uptime = time.monotonic() - (time.time() - (job.folder / "go").stat().st_mtime)
        lines = [
            line + "\n" for line in text.splitlines()
            if any(one in line for one in ours) and float(line[1:].split("]")[0]) > uptime - 1.0
        ]  # fmt: skip
        if lines and fault.dies:
            _save(folder / "kernel" / "dmesg.txt", "".join(lines).encode())


def _await(job: "Job", form: str, done: Callable[[int], bool]) -> None:
    """Waits until all ranks that can have given a form; a little for those that may not."""
    fault = BY_NAME[job.case.fault]
    mute = set(job.case.ranks) if form in fault.mute else set()
    began = time.monotonic()
    while time.monotonic() < began + _DUMP_SECONDS:
        left = {rank for rank in job.pids if job.alive(rank) and not done(rank)}
        if not left or (left <= mute and time.monotonic() > began + _MUTE_SECONDS):
            return
        time.sleep(0.02)


def _save(file: Path, content: bytes, made: int = 0) -> None:
    """made: when its original was written, in nanoseconds: only a dump's file tells its age."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    if made:
        os.utime(file, ns=(made, made))


def read_truth(folder: Path) -> dict[str, Any]:
    truth: dict[str, Any] = json.loads((folder / "truth.json").read_text(encoding="utf-8"))
    return truth


def ranks_of_pids(folder: Path) -> dict[int, int]:
    """Returns pid -> rank of a case."""
    file = folder / "run.json"
    facts = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"pids": {}}
    return {pid: int(rank) for rank, pid in facts["pids"].items()}
