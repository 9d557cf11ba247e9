"""Jobs with frameworks, under the launchers that their users type: see frameworks/goes_wrong.py."""

import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from launchers import Launcher, Order, Plan, torchrun
from run.watched_job import Job, watched_job

_FOLDER = Path(__file__).with_name("frameworks")
_WRONG = "goes_wrong.py"
_LINES = (_FOLDER / _WRONG).read_text(encoding="utf-8").splitlines()
ODD = 1


def _at(function: str) -> str:
    """Returns how a sentence names the only line of a function of goes_wrong.py."""
    return f"{function} ({_WRONG}:{_LINES.index(f'def {function}():') + 2})"


# What the sentence about a fault says.
SAYS = {
    "hang": _at("uploads_metrics"),
    "raise": f"raised ValueError: bad shard 7, at {_at('reads_a_shard')}",
    "kill": f"was killed with SIGKILL at {_at('is_killed')}",
    "worker": _at("decodes_an_image"),
}


def _typed(*words: str, module: str = "-m") -> Launcher:
    """Returns a plan of one command line: of a launcher, or of a script that starts its ranks."""

    def plan(order: Order) -> Plan:
        tool = [module if word == "-m" else word for word in order.tool]
        return [(0, [sys.executable, *words, *tool], order.environ)]

    return plan


_BY_ITSELF = _typed()
_ACCELERATE = _typed("-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes=2")
_DEEPSPEED = _typed(
    "-m", "deepspeed.launcher.runner", "--num_gpus=2", "--no_local_rank", module="--module"
)
# (framework, launcher): its plan.
LAUNCHED: dict[tuple[str, str], Launcher] = {
    ("transformers", "torchrun"): torchrun,
    ("transformers", "accelerate launch"): _ACCELERATE,
    ("accelerate", "accelerate launch"): _ACCELERATE,
    ("lightning", "torchrun"): torchrun,
    ("lightning", "its own"): _BY_ITSELF,
    ("spawn", "its own"): _BY_ITSELF,
    ("deepspeed", "deepspeed"): _DEEPSPEED,
    ("ray", "Ray Train"): _BY_ITSELF,
}


def framework_job(
    framework: str, launcher: str, fault: str = "none", *, steps: int = 30, watched: bool = True
) -> AbstractContextManager[Job]:
    """Starts two ranks, watched, which end if they stand still; or not watched."""
    how: dict[str, Any] = {}
    if framework == "ray" or not watched:
        how = {"program": (), "options": ()}
    if framework == "ray" and watched:
        how["environ"] = {"ARM": "kill"}
    return watched_job(
        fault, ODD, steps=steps, ranks=2, launcher=LAUNCHED[framework, launcher], on_stall="kill",
        script=_FOLDER / f"train_{framework}.py", fresh=True, **how,
    )  # fmt: skip
