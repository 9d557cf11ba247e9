"""FLOPs, TFLOPs and utilization, against the handbook's example and BLOOM-176B's log."""

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oddrank import plan
from plan.refused import lines

BLOOM = {"layers": 70, "hidden": 14336, "seq_length": 2048, "vocabulary": 250_880}


def test_the_handbooks_52_billion_parameters_on_64_gpus():
    """perl: $ng=64; $ms=52; $gbs=1024; $sp=127; $seqlen=2048; $ms*4*2*$seqlen*$gbs/($sp*$ng*1e3)"""
    flops = plan.flops_of_parameters(52e9, 2048, 1024, recompute=True)
    assert plan.tflops(flops, 127, 64) == pytest.approx(52 * 4 * 2 * 2048 * 1024 / (127 * 64 * 1e3))
    assert plan.tflops(flops, 127, 64) == pytest.approx(107.33, abs=0.01)
    model = plan.flops_of_parameters(52e9, 2048, 1024)
    assert plan.tflops(model, 127, 64) == pytest.approx(80.50, abs=0.01)


LOGGED = (
    (105.22, 149.02), (106.46, 147.29), (105.90, 148.06), (106.40, 147.37), (107.53, 145.82),
    (106.13, 147.74), (105.16, 149.10), (106.25, 147.58), (110.17, 142.32), (111.14, 141.09),
    (111.00, 141.26),
)  # fmt: skip


def test_megatrons_equation_3_gives_the_tflops_in_the_log_of_bloom_176b():
    """Chronicles: batches of 2048 samples of 2048 tokens on 384 A100."""
    flops = plan.flops_of_layers(**BLOOM, batch_size=2048, recompute=True)
    for seconds, logged in LOGGED:
        assert plan.tflops(flops, seconds, 384) == pytest.approx(logged, abs=0.011)


def test_the_estimate_by_parameters_is_slightly_low():
    estimate = plan.flops_of_parameters(176.25e9, 2048, 2048, recompute=True)
    exact = plan.flops_of_layers(**BLOOM, batch_size=2048, recompute=True)
    assert 0.95 < estimate / exact < 1


@given(
    layers=st.integers(1, 200), hidden=st.integers(64, 50_000), seq=st.integers(1, 100_000),
    vocabulary=st.integers(1, 500_000), batch=st.integers(1, 10_000),
)  # fmt: skip
def test_recomputation_adds_a_forward_pass_of_the_layers(layers, hidden, seq, vocabulary, batch):
    shape = (layers, hidden, seq, vocabulary, batch)
    model, hardware = (plan.flops_of_layers(*shape, recompute=again) for again in (False, True))
    paper = 96 * batch * seq * layers * hidden**2
    paper *= 1 + seq / (6 * hidden) + vocabulary / (16 * layers * hidden)
    assert hardware == pytest.approx(paper)
    assert 1 < hardware / model <= 4 / 3 * (1 + 1e-9)


def test_mfu_counts_the_models_flops_and_hfu_the_hardwares():
    """150 TFLOPs of an A100's 312: about half, says the handbook, is doing great."""
    peak = plan.peak("A100").tflops
    assert plan.utilization(150, peak) == pytest.approx(0.48, abs=0.01)
    assert plan.utilization(150 * 3 / 4, peak) == pytest.approx(0.36, abs=0.01)


def test_more_than_the_peak_and_times_that_cannot_be_are_refused(golden):
    calls = {"more than the peak": lambda: plan.utilization(400, 312)}
    for seconds in (0, -1, float("nan"), float("inf")):
        calls[f"{seconds} s"] = partial(plan.tflops, 1e15, seconds, 8)
    golden(lines(calls))
