"""Memory by ZeRO stage and of activations, against the papers' numbers and BLOOM's checkpoints."""

import pytest

from oddrank import plan
from oddrank.plan.memory import check_shape
from plan.refused import lines


def test_zeros_figure_1_of_7_5_billion_parameters_on_64_gpus_and_what_tp_and_pp_divide():
    for zero, gigabytes in ((0, 120), (1, 31.4), (2, 16.6), (3, 1.9)):
        state = plan.state_memory(7.5e9, dp=64, zero=zero)
        assert state.total / 1e9 == pytest.approx(gigabytes, abs=0.05)
    whole, part = (plan.state_memory(176e9, tp=t, pp=p) for t, p in ((1, 1), (4, 12)))
    assert part.total == pytest.approx(whole.total / 48)


def test_a_checkpoint_of_bloom_176b_has_2_3_terabytes():
    """Chronicles: with 2.3TB checkpoint size and 40 secs to save a checkpoint."""
    saved = 176.25e9 * plan.ADAM["mixed"].saved
    assert saved / 2**40 == pytest.approx(2.3, rel=0.03)


@pytest.mark.parametrize(("heads", "hidden", "scores"), [(96, 12288, 80), (128, 20480, 64)])
def test_attention_scores_of_gpt_3_and_mt_nlg(heads, hidden, scores):
    """Korthikanti et al., section 5: 5as/h is 80 for GPT-3 and 64 for MT-NLG."""
    none, selective = (
        plan.activation_memory(1, hidden, heads, 2048, 1, recompute=kind)
        for kind in ("none", "selective")
    )
    tokens = 2048 * hidden
    assert (none - selective) / tokens == pytest.approx(scores)
    assert selective / tokens == pytest.approx(34)


def test_activations_shrink_in_the_order_of_the_papers_table():
    shape = (48, 6144, 64, 2048, 4)
    held = [
        plan.activation_memory(*shape, tp=8),
        plan.activation_memory(*shape, tp=8, sequence_parallel=True),
        plan.activation_memory(*shape, tp=8, sequence_parallel=True, recompute="selective"),
        plan.activation_memory(*shape, tp=8, recompute="full"),
    ]
    assert held == sorted(held, reverse=True)
    assert held[2] == pytest.approx(48 * 2048 * 4 * 6144 * 34 / 8)
    assert held[3] == pytest.approx(48 * 2048 * 4 * 6144 * 2)


def test_the_shapes_of_real_models_are_taken():
    check_shape(96, 96, tp=8, pp=8)
    check_shape(70, 112, tp=4, pp=12)  # BLOOM-176B
    check_shape(61, 128, tp=1, pp=16)  # DeepSeek-V3


def test_what_cannot_be_and_a_shape_that_no_gpu_can_hold_its_part_of_are_refused(golden):
    golden(lines({
        "8 layers by 9": lambda: check_shape(8, 96, pp=9),
        "97 heads by 8": lambda: check_shape(96, 97, tp=8),
        "many heads by 12": lambda: check_shape(96, 10**15 - 11, tp=12),
        "ZeRO 4": lambda: plan.state_memory(1e9, zero=4),
        "int8": lambda: plan.state_memory(1e9, adam="int8"),
        "-1 parameters": lambda: plan.state_memory(-1),
        "no head": lambda: plan.activation_memory(1, 1, 0, 1, 1),
        "some": lambda: plan.activation_memory(1, 1, 1, 1, 1, recompute="some"),
    }))  # fmt: skip
