"""`make soak`: the whole fault matrix, many times; writes benchmarks/results/selftest_soak.json."""

import json
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path

import pytest

from faults import (
    RANK_FAULTS,
    STAGES,
    Case,
    cut_link,
    healthy,
    hurt_node,
    hurt_rank,
    hurt_somebody,
    never_started,
    run_once,
    wrong_local_rank,
)

pytestmark = [pytest.mark.soak, pytest.mark.needs("torch", "netns"), pytest.mark.timeout(14400)]

HEALTHY = [healthy(4), healthy(2), healthy(4, nodes=2), healthy(8, quick=True)]
# Every kind of fault at every stage, alternately on rank 0 and on another, so that each kind and
# each stage has both.
KINDS_AND_STAGES = [
    hurt_somebody(kind, stage, root=(i + j) % 2 == 0)
    for i, kind in enumerate(RANK_FAULTS)
    for j, stage in enumerate(STAGES)
]
MATRIX = [
    *KINDS_AND_STAGES,
    *(hurt_rank(kind, 2, "collectives", ranks=4) for kind in RANK_FAULTS),
    *(
        hurt_rank(kind, 3 * (i % 2), "collectives", ranks=4, nodes=2)
        for i, kind in enumerate(RANK_FAULTS)
    ),
    *(
        hurt_node(node, number, stage)
        for number in (signal.SIGKILL, signal.SIGSTOP)
        for node in (1, 0)
        for stage in ("device", "collectives")
    ),
    cut_link("device"),
    cut_link("collectives"),
    wrong_local_rank(2, 1),
    never_started(1, 2),
    never_started(3, 4),
]


RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "selftest_soak.json"


@pytest.mark.parametrize("case", [*HEALTHY, *MATRIX], ids=str)
def test_the_verdict_is_right_every_time(case: Case, repeats: int) -> None:
    times = repeats * 5 // 2 if case in HEALTHY else repeats
    if case not in HEALTHY and repeats == 1:
        pytest.skip("test_faults.py has every kind and stage once: make soak REPEATS=2 runs it")
    with ThreadPoolExecutor() as pool:  # jobs mostly wait: one a core disturbs no other
        wrong = [text for text in pool.map(run_once, [case] * times) if text]
    keep(case, times - len(wrong), times)
    assert not wrong, "\n\n".join(wrong)


def keep(case: Case, right: int, total: int) -> None:
    """Writes a row with its time and commit: the matrix takes hours and several runs."""
    made = json.loads(RESULTS.read_text())
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=RESULTS.parent, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    key = {"fault": case.fault, "where": case.where, "stage": case.stage}
    row = {**key, "right": right, "total": total, "date": str(date.today())}
    rows = {(one["fault"], one["where"], one["stage"]): one for one in made["rows"]}
    rows[tuple(key.values())] = {**row, "commit": done.stdout.strip()}
    RESULTS.write_text(json.dumps({**made, "rows": [*rows.values()]}, indent=1) + "\n")
