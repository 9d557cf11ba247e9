"""Large jobs whose truth is known: nobody is named wrongly, and most culprits are."""

import json
import pickle
import sys
from collections import Counter
from pathlib import Path

import pytest

from triage.flight_dumps import without

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "triage"))
from synthetic import Hang, Options
from synthetic_job import FAULTS, Fault, Job
from synthetic_score import HARM, JOBS, case, options_of, outcome

SEEDS = {16: range(8), 64: range(4)}  # by the size of the job
# The share of cases that name the culprit at least: with all dumps, and with 30 % missing.
WHOLE = {
    "none": 1.0, "host": 1.0, "dead": 1.0, "gpu": 0.8, "missing": 0.5, "size": 0.8, "dtype": 0.8,
    "order": 0.8, "cycle": 0.5, "p2p": 0.3,
}  # fmt: skip
HARMED = {"none": 1.0, "host": 0.4, "size": 0.3, "dtype": 0.3}


def scores(world: int, fault: Fault, harmed: bool) -> tuple[Counter[str], list[str]]:
    """Returns how many cases had which outcome, and who was named wrongly."""
    counts: Counter[str] = Counter()
    wrong = []
    for seed in SEEDS[world]:
        options = options_of(seed) if harmed else Options(skew=HARM.skew)
        truth, said, _, _ = case(JOBS[world], fault, seed, options)
        what, _ = outcome(truth, said)
        counts[what] += 1
        if what == "wrong":
            wrong.append(f"seed {seed}: {truth.ranks}, said {said}")
    return counts, wrong


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("world", [16, 64])
@pytest.mark.parametrize(("harmed", "share"), [(False, WHOLE), (True, HARMED)], ids=["", "harmed"])
def test_most_culprits_and_nobody_else_are_named_with_all_dumps_and_with_some_missing_or_cut_off(
    world: int, fault: Fault, harmed: bool, share: dict[str, float]
) -> None:
    counts, wrong = scores(world, fault, harmed)
    assert wrong == []
    assert counts["right"] >= share.get(fault, 0.0) * len(SEEDS[world]), counts


def test_a_dump_is_what_torch_would_write() -> None:
    """Each entry as its Python pickle and JSON have it; frames are shared, as torch shares them."""
    hang = Hang(Job(2, 2, 2, 2, 5, 1), "host", seed=1)
    made = pickle.loads(hang.dump(3, Options(buffer=12, frames=3)))
    told = json.loads(hang.dump(3, Options(buffer=12, frames=3, as_json=True)))
    assert list(made) == list(told)
    for one, two in zip(made["entries"], told["entries"], strict=True):
        assert without(one, "process_group") == without(two, "process_group")
        assert list(one["process_group"]) == two["process_group"]
    frames = [id(frame) for entry in made["entries"] for frame in entry["frames"]]
    assert len(frames) == 36
    assert len(set(frames)) < 36
