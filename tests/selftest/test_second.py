"""Who measures again, beside whom, and what of it is sent."""

from random import Random

from figures import measured, rounds_of
from oddrank.selftest import second
from oddrank.selftest.choice import Options
from oddrank.selftest.metrics import SPEED
from oddrank.selftest.second import to_send
from oddrank.selftest.stages import again, speed


def test_only_the_doubted_and_a_few_good_ones_measure_again_and_only_what_is_in_doubt():
    rounds = rounds_of([8] * 32)
    slow = {"host_copy": {7: 0.5}}
    rounds.results[SPEED] = measured(rounds, Random(1), noise=0.01, slow=slow)
    speed.stage(Options()).judge(rounds)
    told = again.stage(Options()).plan(rounds)
    assert list(told["repeats"]) == list(told["ranks"]) == ["host_copy"]
    assert 7 in told["ranks"]["host_copy"]
    assert 10 < len(told["ranks"]["host_copy"]) < 80


def test_beside_doubted_ranks_of_a_large_class_the_most_usual_whole_nodes_measure_again():
    """The nodes become slower from first to last, and one in the middle has a doubted rank."""
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
    """What is planned where the ranks are slower by so much in a figure, each: rank -> share."""
    rounds = rounds_of(nodes)
    rounds.results[SPEED] = measured(rounds, Random(1), noise=0.0001, slow={"host_copy": by})
    speed.stage(Options()).judge(rounds)
    return second.plan(rounds, rounds.kept[SPEED])


def test_many_repeats_are_sent_as_some_hundred_medians():
    values = [float(i) for i in range(1600)]
    sent = to_send(values)
    assert (len(sent), sent[0], sent[-1]) == (400, 600.0, 999.0)
    assert to_send(values[:45]) == values[:45]
