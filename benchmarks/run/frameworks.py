"""Scores `oddrank run` in trainings with frameworks, under the launchers that their users take.

Two ranks over gloo on the CPU (tests/run/frameworks), without a fault and with each: which rank
does it name, where, and is any process of the job left? `make frameworks` makes the environment.

frameworks.py                        all jobs, once: half an hour
frameworks.py --only lightning       of these frameworks
frameworks.py --speed --repetitions 5    150 steps with and without oddrank, in so many pairs

right: for a job with a fault, only its rank is named, at the right line, and all of its processes
end; a healthy one ends as without oddrank, and nothing is said.
"""

import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
import harness
from run.framework_jobs import LAUNCHED, ODD, SAYS, framework_job

_DEADLINE = 240.0
_STEPS = 150
_FAST = {("transformers", "torchrun"), ("lightning", "torchrun")}


def scored(framework: str, launcher: str, fault: str) -> dict[str, Any]:
    with framework_job(framework, launcher, fault) as job:
        began = time.monotonic()
        while not job.ended() and time.monotonic() - began < _DEADLINE:
            time.sleep(0.2)
        seconds, ended = time.monotonic() - began, job.ended()
        report = job.report or {"findings": [], "summary": "no report"}
        named = sorted({rank for one in report["findings"] for rank in one["who"]["ranks"]})
        text = report["summary"]
        if fault == "none":
            right = ended and job.codes == [0] and not job.said and not named
        else:
            says = SAYS[fault]
            if (framework, fault) == ("ray", "raise"):  # Ray keeps the error to itself
                says = says.replace(
                    "ValueError: bad shard 7,", "an exception that its launcher caught"
                )
            right = ended and named == [ODD] and says in text
        print(f"{framework}, {launcher}, {fault}: {right}: {text}", file=sys.stderr, flush=True)
        if not right:
            print(job.codes, job.mark.living(), job.output[-3000:], file=sys.stderr, flush=True)
        return {
            "framework": framework, "launcher": launcher, "fault": fault, "named": str(named),
            "said": text, "ended": ended, "right": right, "seconds": round(seconds),
        }  # fmt: skip


def took(framework: str, launcher: str, watched: bool) -> list[float]:
    """Returns the seconds of the slower rank's steps, and CPU seconds of both ranks."""
    with framework_job(framework, launcher, steps=_STEPS, watched=watched) as job:
        job.ends()  # not always with 0: gloo may abort in Python's end (docs/run.md)
        texts = [file.read_text() for file in job.folder.glob("*.took")]
        assert len(texts) == 2, job.output[-3000:]
        steps, *cpu = zip(*(map(float, text.split()) for text in texts), strict=True)
        return [max(steps), *map(sum, cpu)]


def speed(framework: str, launcher: str, pairs: int) -> list[dict[str, Any]]:
    figures: dict[bool, list[list[float]]] = {False: [], True: []}
    for pair in range(pairs):
        for watched in (False, True) if pair % 2 == 0 else (True, False):
            figures[watched].append(took(framework, launcher, watched))
    return [
        {"framework": framework, "steps": _STEPS, "what": what, "pairs": pairs,
         "without_s": harness.spread([one[i] for one in figures[False]]),
         "with_s": harness.spread([one[i] for one in figures[True]]),
         "ratio": harness.ratio(*([one[i] for one in figures[side]] for side in (True, False)))}
        for i, what in enumerate(("steps", "steps, CPU time", "whole process, CPU time"))
    ]  # fmt: skip


def main() -> None:
    parser = harness.parser(__doc__ or "", default_repetitions=1)
    parser.add_argument("--only", nargs="+", metavar="FRAMEWORK")
    parser.add_argument("--faults", nargs="+", metavar="FAULT", default=["none", *SAYS])
    parser.add_argument("--speed", action="store_true")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for framework, launcher in LAUNCHED:
        if framework not in (arguments.only or framework):
            continue
        if framework != "spawn" and find_spec(framework) is None:
            print(f"{framework} is not installed: left out", file=sys.stderr)
        elif arguments.speed:
            if (framework, launcher) in _FAST:
                rows += speed(framework, launcher, arguments.repetitions)
        else:
            for _ in range(arguments.repetitions):
                rows += [scored(framework, launcher, fault) for fault in arguments.faults]
    name = "run/frameworks_speed" if arguments.speed else "run/frameworks"
    harness.report(name, rows, arguments.json)


if __name__ == "__main__":
    main()
