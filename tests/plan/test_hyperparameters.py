"""Initial values, groups and batches, and the ramp-up, against the handbook and the chronicles."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oddrank import plan
from plan.refused import lines


def test_the_handbooks_initial_values_for_bloom_176b():
    """sqrt(1/(14336*3)) = 0.00482; the two rules are sqrt(0.4000/h) and sqrt(0.3333/h)."""
    (tears, _), (large, _) = plan.INIT_STDS.values()
    assert round(large(14336), 5) == 0.00482
    assert tears(14336) == pytest.approx((0.4 / 14336) ** 0.5)
    assert large(14336) < tears(14336) < 0.02


def test_replicas_and_micro_batches_of_tr1_13b_and_bloom_176b():
    """DP_SIZE=$NNODES*$GPUS_PER_NODE/($PP_SIZE*$TP_SIZE): 16 = 32*4/(4*2)

    With MBS=2 each replica has 784/(2*8) = 49 microbatches over 12 PP stages.
    """
    assert plan.data_parallel(32 * 4, tp=2, pp=4) == 16
    assert plan.data_parallel(384, tp=4, pp=12) == 8
    assert plan.microbatches(784, 2, 8) == 49
    assert plan.bubble(12, 49) == pytest.approx(11 / 60)


BLOOM = plan.RampUp(192, 16, 9_765_625, 2048)


def iterations(ramped, samples):
    """Yields the batch size of each iteration, one after the other, as Megatron does."""
    consumed = 0
    while consumed < samples:
        batch = ramped.batch_size(consumed)
        yield batch
        consumed += batch


def test_the_ramp_up_of_bloom_176b_is_that_of_its_log():
    """iteration 12695/ 115311 | consumed samples: 9841584 | global batch size: 2048"""
    batches = list(iterations(BLOOM, 9_841_584))
    assert (len(batches), sum(batches), batches[-1]) == (12695, 9_841_584, 2048)
    assert BLOOM.iterations(220_000_000) == 115_311


def test_a_ramp_up_from_16_by_16_allows_16_replicas():
    """tr1-13B: GBS gets incremented by 16, which limits us to DP_SIZE=16 (with MBS=1)."""
    ramped = plan.RampUp(16, 16, 5_000_000, 1024)
    assert ramped.most_replicas == 16
    ramped.check(1, 16)
    ramped = plan.RampUp(16, 24, 10, 64)  # a batch size that no iteration has need not divide
    assert [one.batch_size for one in ramped.stages()] == [16, 64]
    ramped.check(1, 16)


def test_megatrons_own_example():
    """--rampup-batch-size 16 8 300000, global batch size 1024: 126 steps of 2380 samples."""
    ramped = plan.RampUp(16, 8, 300_000, 1024)
    assert ramped.steps == 126
    assert ramped.batch_size(2380) == 16
    assert ramped.batch_size(2381) == 24


@given(
    start=st.integers(1, 64), increment=st.integers(1, 64), steps=st.integers(0, 40),
    samples=st.integers(1, 5_000),
)  # fmt: skip
def test_the_stages_are_those_of_counting_every_iteration(start, increment, steps, samples):
    ramped = plan.RampUp(start, increment, samples, start + steps * increment)
    counted = list(iterations(ramped, samples + 3 * ramped.goal))
    *ramping, last = ramped.stages()
    listed = [one.batch_size for one in ramping for _ in range(one.iterations)]
    assert counted[: len(listed)] == listed
    assert set(counted[len(listed) :]) == {ramped.goal}
    assert (last.batch_size, last.first_sample) == (ramped.goal, sum(listed))
    assert all(one.iterations > 0 for one in ramping)


def test_sizes_and_ramp_ups_that_do_not_divide_are_refused_with_those_that_do(golden):
    ramped = plan.RampUp(16, 16, 5_000_000, 1024)
    golden(lines({
        "100 ranks by TP 4 and PP 2": lambda: plan.data_parallel(100, tp=4, pp=2),
        "4 ranks by TP 8": lambda: plan.data_parallel(4, tp=8),
        "no rank": lambda: plan.data_parallel(0),
        "1000 samples": lambda: plan.microbatches(1000, 2, 8),
        "3 samples": lambda: plan.microbatches(3, 2, 8),
        "32 replicas from 16 by 16": lambda: ramped.check(1, 32),
        "micro-batch 3 from 16 by 16": lambda: ramped.check(3, 1),
        "from 192 by 100 to 2048": lambda: plan.RampUp(192, 100, 1000, 2048),
        "from 4096 to 2048": lambda: plan.RampUp(4096, 16, 1000, 2048),
        "from 1 by 1 to a million": lambda: plan.RampUp(1, 1, 1000, 1_000_000),
        "from 0": lambda: plan.RampUp(0, 1, 1000, 8),
        "1000 samples of BLOOM's ramp-up": lambda: BLOOM.iterations(1000),
    }))  # fmt: skip
