"""The faults of BLOOM-176B, on the lines that its chronicles quote."""

import re

import pytest

from metrics.training_log import bloom, check, judged, kinds

pytestmark = pytest.mark.needs("samples")


@pytest.fixture
def quoted(samples):
    """Returns iteration -> its line. The chronicles wrap some lines: each is put together."""
    text = (samples / "bloom176b" / "tr11-176B-ml_chronicles.md").read_text()
    lines = re.findall(r"^(\[default7\]: iteration .*(?:\n .*|\niterations.*)*)", text, re.M)
    whole = [" ".join(line.split()) for line in lines]
    return {int(re.search(r"iteration (\d+)", line)[1]): line for line in whole}


def test_each_fault_is_reported_by_the_iteration_at_which_it_is_seen(quoted, golden):
    def log(last, first, until):
        return bloom(last) + [text for number, text in quoted.items() if first <= number <= until]

    assert {31214, 31219, 31251, 42780, 42784} <= quoted.keys()
    assert "TFLOPs: 141.09" in quoted[42784]
    drop, warning = log(42779, 42780, 42784), log(31213, 31214, 31217)
    check(golden, {
        "before the drop is seen": (drop[:-2],),
        "a drop of throughput": (drop, "slower"),
        "gradients that grow": (warning, "grad-growth"),
        "a spike of the loss": (log(31213, 31214, 31219), "loss-spike"),
        "its end": (log(31213, 31214, 31251), "loss-spike"),
    })  # fmt: skip
    (suspect,) = judged(drop).suspects()
    assert 42782 <= suspect["first"] <= 42783
    assert 0.04 < suspect["share"] < 0.06
    assert judged(warning).suspects()[0]["first"] == 31215


def test_the_chronicles_alone_are_too_few_rows_to_judge(samples):
    text = (samples / "bloom176b" / "tr11-176B-ml_chronicles.md").read_text()
    job = judged(text)
    assert job.figures()["rows"] == 18
    assert [s for s in job.suspects() if s["kind"] != "restart"] == []


@pytest.mark.parametrize("seed", range(5))
def test_bloom_without_a_fault_is_healthy(seed):
    assert kinds(bloom(30_000, rows=3000, seed=seed)) == []
