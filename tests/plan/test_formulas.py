"""Each formula, against the numbers that papers, model cards and logs print."""

import math
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.told import refused_calls
from oddrank import plan

DAY, HOUR, MINUTE = 86400, 3600, 60


def tflops(flops, seconds, gpus):
    return flops / (seconds * gpus * 1e12)


def test_palm_s_utilization_with_and_without_attention():
    """Table 3 and appendix B: 238.3K tokens/s on 6144 TPU v4 of 275 TFLOP/s; 48 heads of 256."""
    for shape, share in (({"layers": 118, "width": 48 * 256}, 0.462), ({}, 0.457)):
        flops = plan.flops(540.35e9, 2048, 1, **shape)
        speed = tflops(flops * 238.3e3 / 2048, 1, 6144)
        assert plan.utilization(speed, 275) == pytest.approx(share, abs=0.0005)


def gpt(layers, hidden, vocabulary, seq, batch, **how):
    parameters = plan.parameters(layers, hidden, vocabulary)
    shape = {"layers": layers, "width": hidden, "vocabulary": vocabulary}
    return plan.flops(parameters, seq, batch, **shape, **how)


@pytest.mark.parametrize(
    ("layers", "hidden", "batch", "run", "mfu"),
    [(48, 6144, 4, (1.10, 8), 41.5), (96, 12288, 64, (13.75, 64), 51.4),
     (105, 20480, 280, (37.83, 280), 56.0), (128, 25600, 512, (71.49, 512), 56.3)],
)  # fmt: skip
def test_the_utilizations_of_megatrons_memory_paper(layers, hidden, batch, run, mfu):
    """Korthikanti et al., tables 3 and 5: 22B, 175B, 530B and 1T on A100s."""
    speed = tflops(gpt(layers, hidden, 51200, 2048, batch), *run)
    assert 100 * plan.utilization(speed, 312) == pytest.approx(mfu, abs=0.2)


@given(
    layers=st.integers(1, 200), hidden=st.integers(64, 50_000), seq=st.integers(1, 100_000),
    vocabulary=st.integers(1, 500_000), batch=st.integers(1, 10_000),
)  # fmt: skip
def test_recomputation_adds_a_forward_pass_of_the_layers(layers, hidden, seq, vocabulary, batch):
    shape = (layers, hidden, vocabulary, seq, batch)
    model, hardware = (gpt(*shape, recompute=again) for again in (False, True))
    paper = 96 * batch * seq * layers * hidden**2
    paper *= 1 + seq / (6 * hidden) + vocabulary / (16 * layers * hidden)
    assert hardware == pytest.approx(paper)
    assert 1 < hardware / model <= 4 / 3 * (1 + 1e-9)


@pytest.mark.parametrize(
    ("shape", "ffn", "heads", "experts", "billions"),
    [((32, 4096, 128_256), 14336, 32, 1, 8.03), ((80, 8192, 128_256), 28672, 64, 1, 70.6),
     ((126, 16384, 128_256), 53248, 128, 1, 405.8), ((32, 4096, 32_000), 14336, 32, 2, 12.9),
     ((32, 4096, 32_000), 14336, 32, 8, 46.7)],
)  # fmt: skip
def test_the_parameters_of_llama_3_and_mixtral(shape, ffn, heads, experts, billions):
    """Model cards, which count the input embedding, too. Mixtral: 2 of 8 experts active, then all.

    Grouped-query attention: 8 heads of keys and values.
    """
    found = plan.parameters(*shape, heads=heads, kv_heads=8, ffn=ffn, experts=experts)
    assert (found + shape[1] * shape[2]) / 1e9 == pytest.approx(billions, rel=0.002)


def test_the_flops_of_llama_3_and_deepseek_v3():
    """Llama 3 paper: 3.8e25 FLOPs for 15.6T tokens. DeepSeek-V3 (arXiv 2505.09343, table 2): 250
    GFLOPs a token of 4096; heads of 192 for keys and 128 for values; 36.6B multiply a token.
    """
    assert plan.flops(405e9, 15.6e12, 1) == pytest.approx(3.8e25, rel=0.005)
    shape = {"layers": 61, "width": 128 * (192 + 128) / 2}
    assert plan.flops(36.6e9, 4096, 1, **shape, causal=True) / 4096 == pytest.approx(
        250e9, rel=0.01
    )


def test_llama_3_s_parallelism():
    """Table 4 of its paper: TP 8, PP 16; CP 16 for 131,072 tokens; 430, 400, 380 TFLOP/s."""
    for world, cp, dp in ((8192, 1, 64), (16384, 1, 128), (16384, 16, 8)):
        assert plan.data_parallel(world, tp=8, pp=16, cp=cp) == dp
    for speed, mfu in ((430, 0.43), (400, 0.41), (380, 0.38)):
        assert plan.utilization(speed, plan.peak("h100 sxm")[1]) == pytest.approx(mfu, abs=0.007)


def test_more_than_the_peak_and_what_cannot_be_is_refused(golden):
    calls = {"more than the peak": lambda: plan.utilization(400, 312)}
    for batch in (0, -1, float("nan"), float("inf")):
        calls[f"batch {batch}"] = partial(plan.flops, 1e9, 1, batch)
    calls["no layer"] = lambda: plan.parameters(0, 1, 1)
    golden(refused_calls(calls))


def test_tensor_and_pipeline_parallelism_divide_the_state():
    whole, part = (plan.state_memory(176e9, tp=t, pp=p) for t, p in ((1, 1), (4, 12)))
    assert sum(part) == pytest.approx(sum(whole) / 48)


def test_fsdp2_shards_16_bytes_of_each_parameter():
    """fp32 parameters and gradients and Adam's two moments, whatever type the layers compute in."""
    assert sum(plan.state_memory(8.03e9, dp=8, zero=3, adam="fp32")) == pytest.approx(2 * 8.03e9)


def test_a_checkpoint_of_bloom_176b_has_2_3_terabytes():
    """Chronicles: with 2.3TB checkpoint size and 40 secs to save a checkpoint."""
    held, _, optimizer = plan.ADAM["mixed"]
    assert 176.25e9 * (held + optimizer) / 2**40 == pytest.approx(2.3, rel=0.03)


@pytest.mark.parametrize(("heads", "hidden", "scores", "saved"),
                         [(96, 12288, 80, 0.70), (128, 20480, 64, 0.65)])  # fmt: skip
def test_attention_scores_of_gpt_3_and_mt_nlg(heads, hidden, scores, saved):
    """Korthikanti et al., section 5: 5as/h is 80 for GPT-3, 64 for MT-NLG: 70 % and 65 % of all."""
    none, selective = (
        plan.activation_memory(1, hidden, heads, 2048, 1, recompute=kind)
        for kind in ("none", "selective")
    )
    assert (none - selective) / (2048 * hidden) == pytest.approx(scores)
    assert 1 - selective / none == pytest.approx(saved, abs=0.005)


@pytest.mark.parametrize("tp", [1, 8])
@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_activations_shrink_in_the_order_of_the_papers_table(tp, sequence_parallel):
    shape, how = (48, 6144, 64, 2048, 4), {"tp": tp, "sequence_parallel": sequence_parallel}
    none, selective, full = (
        plan.activation_memory(*shape, **how, recompute=kind)
        for kind in ("none", "selective", "full")
    )
    assert none > selective > full
    values = 48 * 2048 * 4 * 6144
    assert selective == pytest.approx(values * (34 / tp if sequence_parallel else 10 + 24 / tp))
    assert full == pytest.approx(values * 2 / (tp if sequence_parallel else 1))
    # Context parallelism splits the sequence, not the keys that a query sees.
    assert plan.activation_memory(*shape, **how, cp=2) == pytest.approx(none / 2)


def test_the_shapes_of_real_models_are_taken_with_their_fullest_stage():
    for layers, heads, tp, pp, held in (
        (96, 96, 8, 8, 96),
        (70, 112, 4, 12, 72),
        (61, 128, 1, 16, 64),
    ):
        found = plan.activation_memory(layers, 1024, heads, 1, 1, tp=tp, pp=pp, recompute="full")
        assert found == 2 * 1024 * held


def test_memory_that_cannot_be_and_a_shape_that_no_gpu_can_hold_its_part_of_are_refused(golden):
    def shape(layers, heads, **how):
        return plan.activation_memory(layers, 1, heads, 1, 1, **how)

    golden(refused_calls({
        "8 layers by 9": lambda: shape(8, 96, pp=9),
        "97 heads by 8": lambda: shape(96, 97, tp=8),
        "many heads by 12": lambda: shape(96, 10**15 - 11, tp=12),
        "ZeRO 4": lambda: plan.state_memory(1e9, zero=4),
        "int8": lambda: plan.state_memory(1e9, adam="int8"),
        "-1 parameters": lambda: plan.state_memory(-1),
        "no head": lambda: shape(1, 0),
        "some": lambda: shape(1, 1, recompute="some"),
    }))  # fmt: skip


def test_replicas_and_micro_batches_of_tr1_13b_and_bloom_176b():
    """DP_SIZE=$NNODES*$GPUS_PER_NODE/($PP_SIZE*$TP_SIZE): 16 = 32*4/(4*2)

    With MBS=2 each replica has 784/(2*8) = 49 microbatches over 12 PP stages.
    """
    assert plan.data_parallel(32 * 4, tp=2, pp=4) == 16
    assert plan.data_parallel(384, tp=4, pp=12) == 8
    assert plan.microbatches(784, 2, 8) == 49
    assert plan.bubble(12, 49) == pytest.approx(11 / 60)


def test_sizes_that_do_not_divide_are_refused_with_those_that_do(golden):
    golden(refused_calls({
        "100 GPUs by TP 4 and PP 2": lambda: plan.data_parallel(100, tp=4, pp=2),
        "4 GPUs by TP 8": lambda: plan.data_parallel(4, tp=8),
        "no GPU": lambda: plan.data_parallel(0),
        "1000 samples": lambda: plan.microbatches(1000, 2, 8),
        "3 samples": lambda: plan.microbatches(3, 2, 8),
    }))  # fmt: skip


def test_dalys_intervals_are_those_of_his_figures():
    """Daly 2006, figures 3 to 5: dumps of 5 minutes."""
    for mtbf, minutes in ((24 * HOUR, 117), (6 * HOUR, 57), (900, 9.1)):
        interval = plan.daly_interval(5 * MINUTE, mtbf) / MINUTE
        assert interval == pytest.approx(minutes, abs=0.5 if minutes > 10 else 0.05)


@given(save=st.floats(0.1, 1e4), ratio=st.floats(4, 1e6), restart=st.floats(0, 1e4))
def test_no_other_interval_loses_much_less_than_dalys(save, ratio, restart):
    mtbf = save * ratio
    best = plan.daly_interval(save, mtbf)
    lost = plan.lost_share(best, save, mtbf, restart)
    for factor in (0.5, 0.8, 0.95, 1.05, 1.25, 2):
        assert lost <= plan.lost_share(factor * best, save, mtbf, restart) + 2e-3


@given(save=st.floats(1e-3, 1e6), mtbf=st.floats(1, 1e9), interval=st.floats(1e-3, 1e9))
def test_the_lost_share_is_a_share(save, mtbf, interval):
    assert 0 <= plan.lost_share(interval, save, mtbf, 60) <= 1


def test_intervals_where_failures_are_rare_and_where_they_come_faster_than_saves():
    young, daly = (f(10, 30 * DAY) for f in (plan.young_interval, plan.daly_interval))
    assert daly == pytest.approx(young, rel=0.01)
    assert plan.daly_interval(100, 40) == 40
    assert plan.lost_share(1e9, 1, 1) == 1.0


def test_times_that_cannot_be_are_refused(golden):
    golden(refused_calls({
        "save 0": lambda: plan.young_interval(0, 1),
        "save nan": lambda: plan.young_interval(math.nan, 1),
        "restart -1": lambda: plan.lost_share(1, 1, 1, -1),
    }))  # fmt: skip
