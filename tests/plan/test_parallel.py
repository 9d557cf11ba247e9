"""Sizes of groups and batches, against the handbook and the chronicles."""

import pytest

from oddrank import plan
from plan.refused import lines


def test_replicas_and_micro_batches_of_tr1_13b_and_bloom_176b():
    """DP_SIZE=$NNODES*$GPUS_PER_NODE/($PP_SIZE*$TP_SIZE): 16 = 32*4/(4*2)

    With MBS=2 each replica has 784/(2*8) = 49 microbatches over 12 PP stages.
    """
    assert plan.data_parallel(32 * 4, tp=2, pp=4) == 16
    assert plan.data_parallel(384, tp=4, pp=12) == 8
    assert plan.microbatches(784, 2, 8) == 49
    assert plan.bubble(12, 49) == pytest.approx(11 / 60)


def test_sizes_that_do_not_divide_are_refused_with_those_that_do(golden):
    golden(lines({
        "100 ranks by TP 4 and PP 2": lambda: plan.data_parallel(100, tp=4, pp=2),
        "4 ranks by TP 8": lambda: plan.data_parallel(4, tp=8),
        "no rank": lambda: plan.data_parallel(0),
        "1000 samples": lambda: plan.microbatches(1000, 2, 8),
        "3 samples": lambda: plan.microbatches(3, 2, 8),
    }))  # fmt: skip
