"""Findings after measurement and recheck of all links, and their text."""

import gc
import io
from dataclasses import replace
from itertools import product
from random import Random

import pytest

from bench.told import by_name, told
from oddrank import render
from oddrank.bench.pairs import report
from oddrank.bench.pairs.judge import PAIRS, Judge
from oddrank.bench.pairs.stages import games_of_all, games_of_recheck
from oddrank.control.stages import RunState
from pair_measurements import measured, named, nodes_of


def quick(cell):
    return 1.0


def sends(rates, ranks=1):
    """Returns rates of senders to other nodes, of so many ranks each."""
    return lambda cell: 1.0 if cell[0] // ranks == cell[1] // ranks else rates.get(cell[0], 1.0)


def slow(which, ranks=1):
    """Returns rates of which half are lost where `which(sender, receiver)` says so."""
    return lambda cell: 0.5 if cell[0] // ranks != cell[1] // ranks and which(*cell) else 1.0


def among(node, ranks, by):
    """Slows only the transfers between the ranks of this node, by slightly different shares."""
    random = Random(1)

    def rate(cell):
        inside = cell[0] // ranks == cell[1] // ranks == node
        return (by if inside else 1.0) * random.uniform(0.97, 1.03)

    return rate


def judged(states, first, second=None, alone=None, *, ranks=None, **latency):
    """Returns findings and summary. first, second, alone: rates of the three measurements.

    second: as first if None. ranks: those that are measured the second time.
    """
    seen = measured(states, first, **latency)
    again = seen if second is None and ranks is None else None
    again = again or measured(states, second or first, ranks=ranks, **latency)
    return named(states, seen, again, *([measured(states, alone, alone=True)] if alone else []))


def who(found):
    return [(one.cause, one.who.kind, one.who.ranks) for one in found]


def test_who_is_named_after_measurement_and_recheck(golden):
    five, three, of_2, of_4 = nodes_of(5), nodes_of(3), nodes_of(4, ranks=2), nodes_of(4, ranks=4)
    half, uneven = sends({3: 0.5}), sends({2: 0.65, 3: 1.15}, 2)
    hurt = {"latency": lambda cell: 900.0 if set(cell) == {1, 4} else 50.0}
    us = {frozenset({0, 1}): 57.0, frozenset({1, 2}): 91.2, frozenset({0, 2}): 2977.0}
    most = sends(dict.fromkeys((4, 5, 6), 0.5), 4)
    near = dict.fromkeys(range(8, 13), 0.82) | dict.fromkeys(range(13, 16), 0.88)
    both = sends({9: 0.5}, 4)

    def and_inside(cell):
        return 0.5 if cell[0] // 4 == cell[1] // 4 == 2 else both(cell)

    odd = [rank for rank in of_2 if rank % 2]
    others_alone = {rank: {} for rank in of_2} | measured(of_2, ranks=odd, alone=True)
    without = {rank: {"inside": []} for rank in nodes_of(8, ranks=2)}
    two_slow = measured(nodes_of(8, ranks=2), sends({2: 0.5, 9: 0.4}, 2), alone=True)
    rows = {
        "slow twice": (judged(five, half, ranks=[0, 1, 2, 3]), ("slow-sender", "rank", (3,))),
        "both ways": (judged(five, slow(lambda i, j: 3 in (i, j))), ("slow-rank", "rank", (3,))),
        "a receiver": (judged(five, slow(lambda i, j: j == 3)), ("slow-receiver", "rank", (3,))),
        "a link":
            (judged(five, slow(lambda i, j: {i, j} == {1, 4})), ("slow-link", "link", (1, 4))),
        "a way": (judged(five, slow(lambda i, j: (i, j) == (4, 1))), ("slow-link", "link", (1, 4))),
        "a node both ways": (judged(of_2, slow(lambda i, j: 1 in (i // 2, j // 2), 2), None,
                                    slow(lambda i, j: 1 in (i // 2, j // 2), 2)),
                             ("slow-node", "node", (2, 3))),
        "as quick as others the second time": (judged(five, half, quick),),
        "not measured again": (judged(five, half, ranks=[0, 1, 2]), ("not-confirmed", "rank", ())),
        "delayed and therefore slow":
            (judged(five, lambda cell: 0.5 if set(cell) == {1, 4} else 1.0, **hurt),
             ("delayed-link", "link", (1, 4))),
        "far off, and another barely crosses the line":
            (judged(three, lambda cell: 0.8 if cell == (0, 2) else 1.0,
                    latency=lambda cell: us[frozenset(cell)]), ("delayed-link", "link", (0, 2))),
        "all ranks of a node":
            (judged(of_2, sends({2: 0.4, 3: 0.4}, 2), None, sends({2: 0.4, 3: 0.4}, 2)),
             ("slow-sender", "node", (2, 3))),
        "one rank of a node": (judged(of_2, sends({3: 0.4}, 2), None, sends({3: 0.4}, 2)),
                               ("slow-sender", "rank", (3,))),
        "in its node and out of it": (judged(of_2, sends({3: 0.4}), None, sends({3: 0.4})),
                                      ("slow-sender", "rank", (3,))),
        "its mate has what it leaves of a shared way":
            (judged(of_2, sends({2: 0.3, 3: 1.7}, 2), None, sends({2: 0.3}, 2)),
             ("slow-sender", "rank", (2,))),
        "its mate takes more of a shared way, and alone it is quick":
            (judged(of_2, uneven, None, quick),),
        # Noise hid the slow node in the measurement, but all its ranks are slow alone.
        "one of a slow node that looked slow alone":
            (judged(of_2, uneven, sends({2: 0.5, 3: 0.5}, 2), sends({2: 0.5, 3: 0.5}, 2)),
             ("not-confirmed", "rank", ())),
        # Slow by 17 %, near the threshold: five of its eight ranks exceed it, the others nearly.
        "a node of which some ranks crossed the line":
            (judged(nodes_of(5, ranks=8), sends(near, 8), None, sends(near, 8)),
             ("slow-sender", "node", tuple(range(8, 16)))),
        "most ranks of a node":
            (judged(nodes_of(5, ranks=4), most, None, most),
             *(("slow-sender", "rank", (rank,)) for rank in (4, 5, 6)),
             ("slow-sender", "node", (4, 5, 6, 7))),
        "inside its node only":
            (judged(nodes_of(2, ranks=4),
                    lambda cell: 0.5 if cell[0] == 6 and cell[1] in {4, 5, 7} else 1.0),
             ("slow-sender", "rank", (6,))),
        "a rank out of its node, and all inside of it":
            (judged(of_4, and_inside, None, and_inside),
             ("slow-sender", "rank", (9,)), ("slow-node", "node", (8, 9, 10, 11))),
        "a rank that was not measured again":
            (named(of_2, measured(of_2, sends({2: 0.2}, 2)), measured(of_2), others_alone),
             ("not-confirmed", "rank", ())),
        "no recheck of ranks":
            (named(nodes_of(8, ranks=2), two_slow, without), *[("not-confirmed", "rank", ())] * 2),
    }  # fmt: skip
    found = {name: who(made[0]) for name, (made, *_) in rows.items()}
    assert found == {name: due for name, (_, *due) in rows.items()}
    said = {name: "\n".join([told(*made[0]), made[1]]).strip() for name, (made, *_) in rows.items()}
    golden(by_name(said))
    (finding,), _ = rows["slow twice"][0]
    assert (finding.evidence[0].value, finding.evidence[0].median) == pytest.approx((5, 10))
    assert (finding.who.host, finding.confidence.level) == ("node3", "high")


def test_a_node_inside_of_which_all_is_slow_is_named_and_none_of_its_ranks(golden):
    for (nodes, ranks), by in product([(2, 4), (4, 3), (4, 4), (3, 5), (8, 8)], (0.5, 0.7)):
        rate = among(1, ranks, by)
        states = nodes_of(nodes, ranks=ranks)
        found, _ = named(states, measured(states, rate), measured(states, rate))
        assert who(found) == [("slow-node", "node", tuple(range(ranks, 2 * ranks)))], (nodes, by)
    golden(told(*found))


def unsuspected(states, seen):
    """Returns findings and summary if nothing is suspected."""
    judge, run = Judge(0.2), RunState(len(states), states, {PAIRS: seen})
    assert not judge.suspects(run)
    return judge.unresolved(run), judge.all_well(run, "")


def test_links_between_nodes_of_other_numbers_of_ranks_are_not_said_to_be_judged(golden):
    said = {}
    for fewer in ((), (15,), (10, 11, 14, 15)):
        full = nodes_of(4, ranks=4).items()
        kept = [state for rank, state in full if rank not in fewer]
        states = {number: replace(state, rank=number) for number, state in enumerate(kept)}
        found, summary = unsuspected(states, measured(states))
        assert not found
        said[f"without ranks {fewer}"] = summary
    golden(by_name(said))


def test_local_ranks_that_move_less_on_every_node_are_told(golden):
    states, random = nodes_of(8, ranks=8), Random(1)
    halves = [1.5] * 4 + [0.5] * 4
    rows = [{**dict.fromkeys(range(8), 1.0), **dict.fromkeys(slow, 0.5)} for slow in
            (range(4, 8), range(2, 8))]  # fmt: skip
    rails = [{8 * node + local: row[local] for node in range(8) for local in row} for row in rows]
    chance = [random.sample(halves, 8) for _ in range(8)]
    rails.append({8 * node + i: share for node in range(8) for i, share in enumerate(chance[node])})
    made = [unsuspected(states, measured(states, sends(rates, 8))) for rates in rails]
    assert [who(found) for found, _ in made] == [[("uneven-places", "rank", ())]] * 2 + [[]]
    golden("\n".join(line for found, summary in made for line in (told(*found), summary)))


def test_links_of_two_kinds_or_with_much_noise_are_told_and_name_nobody(golden):
    random, states = Random(1), nodes_of(8)
    racks = slow(lambda i, j: (i < 4) != (j < 4))
    rates = (racks, lambda cell: random.lognormvariate(0, 0.8))
    made = [unsuspected(states, measured(states, rate)) for rate in rates]
    causes = [[(cause, "rank", ())] for cause in ("uneven-links", "too-noisy")]
    assert [who(found) for found, _ in made] == causes
    golden("\n".join(told(*found) for found, _ in made))


def test_ranks_that_cut_a_pass_into_different_parts_add_up_to_what_their_node_moved():
    states = nodes_of(3, ranks=2)
    seen = measured(states)
    peer, _, latency = seen[2]["nodes"][0]
    seen[2]["nodes"][0] = (peer, [4.0, 6.0], latency)
    look = Judge(0.2).measurement(RunState(6, states, {PAIRS: seen}))
    assert look.between["GB/s"][0, 1][0] == [15]
    assert look.between["GB/s"][0, 1][1] == [20] * 4


@pytest.mark.parametrize("enabled", [True, False])
def test_a_process_without_garbage_collection_stays_so(enabled):
    states = nodes_of(6)
    try:
        (gc.enable if enabled else gc.disable)()
        Judge(0.2).measurement(RunState(6, states, {PAIRS: measured(states)}))
        assert gc.isenabled() is enabled
    finally:
        gc.enable()


def again(states, rate):
    run = RunState(len(states), states, {PAIRS: measured(states, rate)})
    judge = Judge(0.2)
    return judge.suspects(run), games_of_recheck(judge, run)


def test_doubted_ranks_meet_again_while_their_mates_rest():
    _, games = again(nodes_of(5, ranks=2), sends({2: 0.65, 3: 1.15}, 2))
    assert [game.where for game in games] == ["ranks", "ranks"]
    assert [len(team) for game in games for team in game.teams] == [1] * 8
    assert (2,) in games[0].teams
    assert (3,) in games[1].teams


def test_a_rank_beyond_the_eighth_of_its_node_is_measured_again_with_a_mate():
    suspects, games = again(nodes_of(6, ranks=12), sends({12 + 10: 0.2}, 12))
    assert any("rank 22" in finding.what for finding in suspects)
    met = {rank for game in games if game.where == "ranks" for team in game.teams for rank in team}
    assert 22 in met
    assert met & {*range(12, 24)} - {22}


def test_doubted_ranks_are_measured_again_in_few_rounds_and_the_worst_among_them():
    worst = 8 + 3
    for slow in (1, 2, 4, 8):
        rates = {8 * 3 * i + (3 + i) % 8: 0.4 for i in range(2, slow + 1)} | {worst: 0.2}
        suspects, games = again(nodes_of(26, ranks=8), sends(rates, 8))
        games = [game for game in games if game.where == "ranks"]
        assert suspects
        assert 0 < sum(game.turns() for game in games) <= 24
        assert any((worst,) in game.teams for game in games)


def test_all_ranks_of_two_large_nodes_meet_alone_only_where_that_is_few_rounds():
    for ranks, all_alone in ((16, True), (32, False)):
        nodes = [tuple(range(ranks)), tuple(range(ranks, 2 * ranks))]
        alone = [game for game in games_of_all(nodes) if game.where == "ranks"]
        assert len(alone) == (ranks if all_alone else 0)


def squares_of(states):
    run = RunState(len(states), states, {PAIRS: measured(states)})
    return report.squares_of(run, Judge(0.2).measurement(run))


def test_the_data_has_a_matrix_between_nodes_and_one_inside_each():
    states = nodes_of(3, ranks=2)
    data = report.data_of(squares_of(states))
    assert data["names"] == ["node0", "node1", "node2"]
    assert data["ranks"] == [[0, 1], [2, 3], [4, 5]]
    assert data["GBps"][0] == [None, 20, 20]  # both ranks of the node at once
    assert data["latency_us"][2] == [50, 50, None]
    assert [one["node"] for one in data["inside"]] == ["node0", "node1", "node2"]
    assert data["inside"][1]["names"] == ["rank 2", "rank 3"]
    assert data["inside"][1]["GBps"] == [[None, 10], [10, None]]
    namesakes = {rank: replace(state, host="node") for rank, state in states.items() if rank < 4}
    data = report.data_of(squares_of(namesakes))
    assert data["names"] == ["node#0", "node#1"]
    assert [one["ranks"] for one in data["inside"]] == [[[0], [1]], [[2], [3]]]
    data = report.data_of(squares_of(nodes_of(1, ranks=3)))
    assert data["names"] == ["rank 0", "rank 1", "rank 2"]
    assert data["inside"] == []


def test_where_most_links_are_not_measured_the_data_is_a_list_of_those_that_are():
    data = report.data_of(squares_of(nodes_of(65)))
    assert len(data["links"]) == 65 * 64
    assert data["links"][0] == [0, 1, 10, 50]
    assert "GBps" not in data


def test_a_matrix_is_shown_as_long_as_a_screen_holds_it(golden):
    for count, widest in ((3, 100), (16, 200), (17, 100)):
        stream = io.StringIO()
        for title, columns, rows in report.tables_of(squares_of(nodes_of(count))):
            render.table(columns, rows, stream, title=title)
        assert max(map(len, stream.getvalue().splitlines())) <= widest
        assert ("node2" in stream.getvalue()) == (count <= 16)
        if count != 16:
            golden(stream.getvalue(), f"{count}")
