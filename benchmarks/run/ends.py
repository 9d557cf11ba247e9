"""Counts how jobs of two ranks over gloo end: alone, armed, and under `oddrank run`.

Ranks are forks of this process, which has imported torch. They end as any Python does, and free
their objects then. Jobs end in three ways in turn: they destroy their process group, they leave it
to Python's end, as many scripts do, or Ctrl-C ends them while they train.

well: ranks that returned, or that Ctrl-C ended.

aborted: ranks that SIGABRT ended, by "terminate called without an active exception": gloo's thread
lets go of the last collective's tensor, and asks for the GIL while Python ends. Python before 3.14
ends such a thread by unwinding its stack, through destructors of torch. It needs no oddrank.
hung: ranks that did not end within a minute.
told: jobs that oddrank reported, though a rank is at fault only in the aborted ones.
"""

import collections
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
# Threads would not survive a fork.
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
import torch
import torch.distributed as dist

import forked
import harness
import processes
from oddrank import forks

_SCRIPT = os.path.abspath(__file__)
_LONGEST = 60.0
_ENDS = {
    0: "well", -signal.SIGINT: "well", -signal.SIGABRT: "aborted", -signal.SIGKILL: "hung",
}  # fmt: skip
_HOW = ("destroys", "leaves", "interrupted")
KINDS = {
    "alone": (),
    "armed": ("-c", "import oddrank, runpy, sys; oddrank.arm(); del sys.argv[0]\n"
              "runpy.run_path(sys.argv[0], run_name='__main__')"),
    "oddrank run": ("-m", "oddrank", "run"),
}  # fmt: skip


def trains(how: str) -> None:
    dist.init_process_group("gloo")
    for _ in range(5):
        dist.all_reduce(torch.ones(1))
    if how == "interrupted":
        Path(f"trains{dist.get_rank()}").touch()
        while True:
            dist.all_reduce(torch.ones(1))
    if how == "destroys":
        dist.destroy_process_group()


def start(kind: str, environ: dict[str, str], how: str, folder: str) -> int:
    """Forks a rank; returns its pid. In the rank it does not return."""
    if pid := os.fork():
        return pid
    os.chdir(folder)
    output = os.open("out", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ.update(environ)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    forks.begin_anew()
    forked.run_python([*KINDS[kind], _SCRIPT, how])
    sys.exit(0)


def job(kind: str, how: str) -> list[str]:
    """Runs a job; returns how each rank ended, and "told" if oddrank reported it."""
    folder = tempfile.mkdtemp(prefix="oddrank-")  # no context: a rank would leave it, too
    with processes.held_port() as port:
        own = {
            "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port), "ODDRANK_DIR": f"{folder}/records",
        }  # fmt: skip
        ranks = {
            start(kind, {**own, "RANK": str(rank), "LOCAL_RANK": str(rank)}, how, folder)
            for rank in range(2)
        }
        ends, limit = [], time.monotonic() + _LONGEST
        interrupts = how == "interrupted"
        while ranks:
            if interrupts and len([*Path(folder).glob("trains*")]) == len(ranks):
                interrupts = False
                for pid in ranks:
                    os.kill(pid, signal.SIGINT)
            for pid in [*ranks]:
                if time.monotonic() > limit:
                    os.kill(pid, signal.SIGKILL)
                done, status = os.waitpid(pid, os.WNOHANG)
                if done:
                    ranks.remove(pid)
                    code = os.waitstatus_to_exitcode(status)
                    ends.append(_ENDS.get(code, f"exit code {code}"))
            time.sleep(0.01)
    output = Path(folder, "out").read_text()
    if any(line.startswith("oddrank") for line in output.splitlines()):
        ends.append("told")
    if set(ends) != {"well"}:
        print(kind, how, ends, output[-3000:], file=sys.stderr)
    shutil.rmtree(folder, ignore_errors=True)
    return ends


def main() -> None:
    arguments = harness.parser(__doc__ or "", default_repetitions=300).parse_args()
    ends: dict[str, collections.Counter[str]] = {kind: collections.Counter() for kind in KINDS}
    for number in range(arguments.repetitions):
        for kind in KINDS:
            ends[kind].update(job(kind, _HOW[number % len(_HOW)]))
    rows = [
        {"jobs": kind, **{how: found[how] for how in (*dict.fromkeys(_ENDS.values()), "told")}}
        for kind, found in ends.items()
    ]
    harness.report("run/ends", rows, arguments.json)


if __name__ == "__main__":
    if sys.argv[1:] in [[how] for how in _HOW]:
        trains(sys.argv[1])
    else:
        main()
