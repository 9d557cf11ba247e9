"""In how many real jobs is the rank that failed first named from the log alone?

Jobs of 8 ranks under torchrun --tee 3 (gloo), mpirun --tag-output and srun --label on two nodes
(needs root), all output in one log. One rank, chosen at random, raises, is killed, exits, or hangs
in front of a collective.
right: named, and no other rank; for a hang also: no rank is named, since only its victims write.
"""

import json
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
import harness
from slurm import two_nodes

RANKS = 8
JOB = """
import os, signal, sys, time
how, culprit = sys.argv[1], int(sys.argv[2])
known = ("RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")
rank = int(next(os.environ[name] for name in known if name in os.environ))
meet = lambda: None
if "RANK" in os.environ:
    import datetime, torch, torch.distributed as dist
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=30))
    def meet():
        dist.all_reduce(torch.ones(8))
for step in range(40):
    meet()
    print("step", step, "of rank", rank, flush=True)
    time.sleep(0.05)
    if rank == culprit and step == 15:
        if how == "raises":
            raise ValueError("boom")
        if how == "exits":
            os._exit(7)
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "hangs":
            time.sleep(100)
"""
_TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS),
             "--tee", "3"]  # fmt: skip
_MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--tag-output", "-n", str(RANKS),
           sys.executable]  # fmt: skip
_SRUN = ["srun", "--label", "--nodes", "2", "--ntasks", str(RANKS), "--kill-on-bad-exit=1",
         sys.executable]  # fmt: skip
FAULTS = {
    "torchrun": ("raises", "exits", "killed", "hangs"),
    "mpirun": ("raises", "exits", "killed"),
    "srun": ("raises", "exits", "killed"),
}


@contextmanager
def launcher_of(name: str) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Yields the command before a script, and its environment."""
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    if name == "srun":
        with two_nodes() as slurm:
            yield slurm.inside(0) + _SRUN, slurm.environ(environ)
    else:
        yield _TORCHRUN if name == "torchrun" else _MPIRUN, environ


def judged(log: Path) -> set[int]:
    """Returns the ranks that `oddrank logs` names with more than low confidence."""
    command = [sys.executable, "-m", "oddrank", "logs", "first-error", str(log), "--json", "-"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    made = json.loads(done.stdout)
    named = [one["who"] for one in made["findings"] if one["confidence"]["level"] != "low"]
    # torchrun's prefixes say the local rank, which is the rank here.
    local = (re.search(r"local rank (\d+)", who["device"] or "") for who in named)
    return {rank for who in named for rank in who["ranks"]} | {int(one[1]) for one in local if one}


def run(
    command: list[str], environ: dict[str, str], how: str, culprit: int, folder: Path
) -> set[int]:
    """Runs a job and returns the ranks that its log names."""
    script, log = folder / "train.py", folder / "job.log"
    script.write_text(JOB)
    with log.open("wb") as file:
        subprocess.run(
            [*command, str(script), how, str(culprit)], stdout=file, stderr=file, timeout=600,
            check=False, env=environ,
        )  # fmt: skip
    return judged(log)


def main() -> None:
    arguments = harness.parser(str(__doc__), default_repetitions=3)
    arguments.add_argument("--launchers", default="torchrun,mpirun,srun", help="which of them")
    options = arguments.parse_args()
    rows = []
    chosen = random.Random(7)
    for launcher in options.launchers.split(","):
        with launcher_of(launcher) as (command, environ):
            for how in FAULTS[launcher]:
                right = wrong = 0
                for _ in range(options.repetitions):
                    culprit = chosen.randrange(1, RANKS)
                    with tempfile.TemporaryDirectory() as folder:
                        named = run(command, environ, how, culprit, Path(folder))
                    right += named == {culprit} or (how == "hangs" and not named)
                    wrong += bool(named - {culprit})
                rows.append({"launcher": launcher, "fault": how, "jobs": options.repetitions,
                             "right": right, "wrong name": wrong})  # fmt: skip
    harness.report("logs_first_errors", rows, options.json, ranks=RANKS)


if __name__ == "__main__":
    main()
