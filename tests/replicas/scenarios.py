"""Scenarios of a real gloo job: what each rank runs, and what the test reads.

A job file registers functions by @scenario and calls rank_main(); JOB RANK WORLD FOLDER runs them.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import forked
from golden import Golden
from patience import PATIENCE
from reports import valid

SCENARIOS: dict[str, Callable[[int], Any]] = {}


def scenario(run: Callable[[int], Any]) -> Callable[[int], Any]:
    SCENARIOS[run.__name__] = run
    return run


def folder() -> Path:
    """Returns the folder that the ranks of this job share."""
    return Path(sys.argv[3])


def rank_main() -> None:
    import torch
    import torch.distributed as dist

    rank, world = int(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder() / "store"), world)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
    found = {}
    for name, run_it in SCENARIOS.items():
        found[name] = run_it(rank)
        print(f"{name}: ended", flush=True)  # shows in the failure's text where a job hung
    text = json.dumps(found, default=lambda report: report.envelope())
    (folder() / f"rank{rank}.json").write_text(text)
    dist.destroy_process_group()


class Job:
    """The answer of each scenario, by rank."""

    def __init__(self, ranks: list[dict[str, Any]], folder: Path) -> None:
        self.ranks, self.folder = ranks, folder

    def __call__(self, scenario: str) -> Any:
        """Returns the answer of all ranks, which is the same."""
        answers = [rank[scenario] for rank in self.ranks]
        for answer in answers:
            assert without_own(answer) == without_own(answers[0])
            for report in _reports_in(answer):
                valid(json.dumps(report))
        return answers[0]

    def judge(self, golden: Golden, rows: Mapping[str, Any]) -> None:
        """Compares verdict and (cause, ranks) of each scenario's reports; keeps their sentences."""
        said = []
        for name, due in rows.items():
            reports = _reports_in(self(name))
            assert [(one["verdict"], *named(one)) for one in reports] == due, (name, reports)
            said += [f"{name}\n{sentences(one)}" for one in reports]
        golden("\n\n".join(said).replace(str(self.folder), "FOLDER"))


def _reports_in(answer: Any) -> list[dict[str, Any]]:
    return [one for one in (answer if isinstance(answer, list) else [answer])
            if isinstance(one, dict)]  # fmt: skip


def named(report: dict[str, Any]) -> list[tuple[str, list[int]]]:
    return [(one["cause"], one["who"]["ranks"]) for one in report["findings"]]


def sentences(report: dict[str, Any]) -> str:
    """Returns all that a report says, without what other machines compute."""
    lines = [report["summary"]]
    for one in report["findings"]:
        lines += [
            f"  {one['condition']}: {one['what']}",
            *(f"    - {point['text']}" for point in one["evidence"]),
        ]
    text = "\n".join(lines).replace(os.uname().nodename, "HOST")
    text = re.sub(r"(first at \[[\d, ]+\]: ).*\.\.\.", r"\1...", text)  # it is cut off
    return re.sub(r"[-+.\w()]+ \(0x[0-9a-f]+\)|\b[0-9a-f]{32}\b", "VALUE", text)


def bits(found: Any) -> dict[str, tuple[object, ...]]:
    """Returns the tensors of a checkpoint."""
    return {name: (one.dtype, one.shape, one.digest) for name, one in found.tensors.items()}


def without_own(answer: Any) -> Any:
    """Leaves out what differs from rank to rank: its number, its time, its own tensors."""
    if isinstance(answer, list):
        return [without_own(one) for one in answer]
    if not isinstance(answer, dict):
        return answer
    return {key: answer[key] for key in ("verdict", "summary", "findings")}


def run(job: Path, ranks: int, folder: Path) -> Job:
    """Runs all scenarios of a job file."""
    tests = str(Path(__file__).parents[1])
    path = os.pathsep.join([tests, *filter(None, [os.environ.get("PYTHONPATH")])])
    logs = [(folder / f"log{rank}").open("w+") for rank in range(ranks)]
    started = [
        forked.popen(
            [sys.executable, job, str(rank), str(ranks), folder], stdout=logs[rank],
            stderr=subprocess.STDOUT, env={**os.environ, "PYTHONPATH": path},
        )
        for rank in range(ranks)
    ]  # fmt: skip
    try:
        codes = [rank.wait(timeout=5 * PATIENCE.limit) for rank in started]
    except subprocess.TimeoutExpired:
        codes = [-1]
    finally:
        for rank in started:
            rank.kill()
    said = "\n".join((folder / f"log{rank}").read_text()[-3000:] for rank in range(ranks))
    assert codes == [0] * ranks, said
    answers = [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(ranks)]
    return Job(answers, folder)


class Harmful:
    """In a pickle, code that makes the file "harmed"."""

    def __reduce__(self) -> Any:
        return (os.system, ("touch harmed",))
