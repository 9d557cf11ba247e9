"""The plan of the recheck: which ranks measure again, beside which, and its message."""

from random import Random

from figures import measured, run_of
from oddrank.selftest import Options
from oddrank.selftest.metrics import SPEED
from oddrank.selftest.stages import speed


def test_only_the_doubted_and_a_few_good_ones_measure_again_and_only_what_is_in_doubt():
    run = run_of([8] * 32)
    slow = {"host_copy": {7: 0.5}}
    run.results[SPEED] = measured(run, Random(1), noise=0.01, slow=slow)
    speed.stage(Options()).conclude(run)
    plan = speed.recheck(Options()).plan(run)
    assert list(plan["repeats"]) == list(plan["ranks"]) == ["host_copy"]
    assert 7 in plan["ranks"]["host_copy"]
    assert 10 < len(plan["ranks"]["host_copy"]) < 80


def test_beside_doubted_ranks_of_a_large_class_the_most_usual_whole_nodes_measure_again():
    """Each node is slower than the one before; one in the middle has a suspect."""
    graded = {rank: 0.002 * (rank // 8) for rank in range(8 * 64)} | {8 * 31 + 2: 0.8}
    planned = second_look([8] * 64, graded)
    usual = [*range(28, 31), *range(32, 36)]
    partners = planned.partners["host_copy"]
    assert partners > {8 * node + local for node in usual for local in range(8)}
    assert planned.good["host_copy"] == partners
    (other,) = {rank // 8 for rank in partners} - set(usual)
    assert other in (27, 36)
    assert len(partners) == 64


def test_where_each_node_has_a_doubted_rank_the_most_usual_others_measure_again():
    doubted = dict.fromkeys(range(0, 8 * 64, 8), 0.8)
    graded = {rank: 0.002 * (rank // 8) for rank in range(8 * 64)} | doubted
    partners = second_look([8] * 64, graded).partners["host_copy"]
    assert len(partners) == 64
    assert not partners & set(doubted)
    assert min(partners) > 200
    assert max(partners) < 350


def second_look(nodes, by):
    """Returns the recheck's plan. by: for each figure, rank -> slowdown as a share."""
    run = run_of(nodes)
    run.results[SPEED] = measured(run, Random(1), noise=0.0001, slow={"host_copy": by})
    speed.stage(Options()).conclude(run)
    return speed.plan_recheck(run, run.judged[SPEED].look)


def test_many_repeats_are_sent_as_some_hundred_medians():
    values = [float(i) for i in range(1600)]
    sent = speed.to_send(values)
    assert (len(sent), sent[0], sent[-1]) == (400, 600.0, 999.0)
    assert speed.to_send(values[:45]) == values[:45]
