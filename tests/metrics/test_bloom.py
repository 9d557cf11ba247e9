"""The faults of BLOOM-176B, on the lines that its chronicles quote."""

import re

import pytest

from metrics.training_log import bloom, found, judged, kinds

pytestmark = pytest.mark.needs("samples")


@pytest.fixture
def quoted(samples):
    """Returns iteration -> its line. The chronicles wrap some lines: each is put together."""
    text = (samples / "bloom176b" / "tr11-176B-ml_chronicles.md").read_text()
    lines = re.findall(r"^(\[default7\]: iteration .*(?:\n .*|\niterations.*)*)", text, re.M)
    whole = [" ".join(line.split()) for line in lines]
    return {int(re.search(r"iteration (\d+)", line)[1]): line for line in whole}


def between(quoted, first, last):
    return [line for number, line in quoted.items() if first <= number <= last]


def test_the_lines_are_the_chronicles(quoted):
    assert {31214, 31219, 31251, 42780, 42784} <= quoted.keys()
    assert "TFLOPs: 141.09" in quoted[42784]


def test_the_throughput_drop_is_reported_by_iteration_42784(quoted):
    log = bloom(42779) + between(quoted, 42780, 42784)
    (drop,) = found(log)
    assert (drop.cause, drop.condition) == ("slower", "slow")
    assert drop.confidence.level == "medium"
    (suspect,) = judged(log).suspects()
    assert 42782 <= suspect["first"] <= 42783
    assert 0.04 < suspect["share"] < 0.06
    assert kinds(log[:-2]) == []


def test_the_gradients_warn_by_iteration_31217(quoted):
    log = bloom(31213) + between(quoted, 31214, 31217)
    (warning,) = found(log)
    assert warning.cause == "grad-growth"
    assert judged(log).suspects()[0]["first"] == 31215


def test_the_loss_spike_is_reported_at_31219_and_its_end_is_seen(quoted):
    log = bloom(31213) + between(quoted, 31214, 31219)
    (spike,) = found(log)
    assert spike.cause == "loss-spike"
    assert "5.098 at iteration 31219" in spike.what
    assert "has not come back" in spike.what
    assert any("grad norm" in evidence.text for evidence in spike.evidence)
    (spike,) = found(log + between(quoted, 31220, 31251))
    assert "was back at iteration 31250" in spike.what


def test_the_chronicles_alone_are_too_few_rows_to_judge(samples):
    text = (samples / "bloom176b" / "tr11-176B-ml_chronicles.md").read_text()
    job = judged(text)
    assert job.figures()["rows"] == 18
    assert [s for s in job.suspects() if s["kind"] != "restart"] == []


@pytest.mark.parametrize("seed", range(5))
def test_bloom_without_a_fault_is_healthy(seed):
    assert kinds(bloom(30_000, rows=3000, seed=seed)) == []
