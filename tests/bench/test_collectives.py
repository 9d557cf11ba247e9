"""Collectives: layouts against those simulated with lists, and groups of ranks (--split)."""

from dataclasses import replace
from itertools import accumulate, product
from types import SimpleNamespace

import pytest

from bench.told import refusal, refusals, told
from job import job
from oddrank.bench import split
from oddrank.bench.case import COLLECTIVES, DTYPES, NO_OP, OPS, REDUCED, ROOT, parts_of
from oddrank.bench.command import run
from oddrank.bench.data import Row
from oddrank.bench.plan import cases_of, in_turn
from oddrank.bench.sampling import MOST_PASSES
from oddrank.bench.split import Split
from oddrank.control.stages import RankState, RunState
from oddrank.launch import current
from oddrank.machine import node_number

WORLDS = [1, 2, 3, 4, 7, 8]
FAST = ("--budget", "6", "--precision", "20%")
USUAL = (100.0, 101.0, 99.0)
ROW = Row("nccl", "all_reduce", "float32", "sum", 1 << 20, 1 << 18, True, 2, "ok", iterations=20)


def sends(name, case, world):
    """Returns every rank's input as (rank, index) pairs, by its layout."""
    layouts = [COLLECTIVES[name].layout(case, rank, world) for rank in range(world)]
    return [
        [(s.source, s.first + i) for s in layout.send for i in range(s.count)] for layout in layouts
    ]


def total(put):
    return [(REDUCED, i) for i in range(len(put[0]))]


def parts(values, world):
    size = len(values) // world
    return [values[r * size : (r + 1) * size] for r in range(world)]


def only_root(values, world):
    return [values if rank == ROOT else None for rank in range(world)]


def uneven(put, world):
    unit = len(put[0]) // (world * (world + 1) // 2)
    got = [[] for _ in range(world)]
    for source, values in enumerate(put):
        at = 0
        for peer, units in enumerate(parts_of(source, world)):
            got[peer] += values[at : at + units * unit]
            at += units * unit
    return got


def joined(put):
    return [value for one in put for value in one]


# Collective -> every rank's result by its definition; None: not checked.
PLAYED = {
    "all_reduce": lambda put, n: [total(put)] * n,
    "reduce": lambda put, n: only_root(total(put), n),
    "reduce_scatter": lambda put, n: parts(total(put), n),
    "all_gather": lambda put, n: [joined(put)] * n,
    "gather": lambda put, n: only_root(joined(put), n),
    "broadcast": lambda put, n: [put[ROOT]] * n,
    "scatter": lambda put, n: parts(put[ROOT], n),
    "all_to_all": lambda put, n: [
        joined(row) for row in zip(*map(parts, put, [n] * n), strict=True)
    ],
    "all_to_all_v": uneven,
    "sendrecv": lambda put, n: [put[(r - 1) % n] for r in range(n)],
}


def test_every_rank_receives_what_the_collective_defines():
    for (name, play), world in product(PLAYED.items(), WORLDS):
        case = COLLECTIVES[name].case("int32", 4 * 100, "sum", world)
        due = play(sends(name, case, world), world)
        for rank in range(world):
            where = f"{name}, rank {rank} of {world}"
            layout = COLLECTIVES[name].layout(case, rank, world)
            got = [(s.source, s.first + i) for s in layout.recv for i in range(s.count)]
            assert got == (due[rank] or []), where
            if layout.recv:  # without a hole or an overlap, and up to the buffer's end
                *begins, end = accumulate((s.count for s in layout.recv), initial=0)
                assert [s.offset for s in layout.recv] == begins, where
                assert layout.recv_count == end, where


def test_uneven_splits_differ_from_rank_to_rank_and_from_their_answer():
    for world in (2, 3, 8):
        table = [parts_of(rank, world) for rank in range(world)]
        for line in (*table, *zip(*table, strict=True)):
            assert sorted(line) == list(range(1, world + 1))
        assert (table[0][1] != table[1][0]) == (world > 2)


def test_a_size_is_rounded_to_what_the_ranks_can_share_and_never_to_nothing():
    sizes = (1, 8, 4096, 1 << 20, (1 << 34) + 5)
    every = product(COLLECTIVES.values(), DTYPES, (1, 2, 7, 8, 1000), sizes)
    for row, dtype, world, size in every:
        case = row.case(dtype, size, "sum", world)
        where = f"{case} of {size} B on {world} ranks"
        assert case.op == ("sum" if row.reduces else NO_OP), where
        if row.name == "barrier":
            assert case.bytes == 0
            continue
        unit = DTYPES[dtype] * row.shares(world)
        assert case.bytes % unit == 0, where
        assert unit <= case.bytes <= max(unit, size), where
        assert case.bytes + unit > size, where


def test_bus_factors_are_those_of_nccl_tests_and_help_says_where_they_are_too_low():
    ones = ("broadcast", "reduce", "sendrecv")
    factors = {name: COLLECTIVES[name].bus_factor(4) for name in PLAYED}
    assert factors == {**dict.fromkeys(PLAYED, 0.75), **dict.fromkeys(ones, 1), "all_reduce": 1.5}
    for world in (2, 8):  # the factor of nccl-tests assumes even splits
        parts = parts_of(0, world)
        crossing = 1 - parts[0] / sum(parts)
        below = 1 - COLLECTIVES["all_to_all_v"].bus_factor(world) / crossing
        assert below == pytest.approx(1 / (world + 2))
        assert f"{100 * below:.0f} %" in " ".join(run.help.split())


def names_of(**wanted):
    todo = cases_of(**{"dtypes": ["float32"], "ops": ["sum"], **wanted})
    return [one_pass.name for one_pass in in_turn(todo, 1)]


def test_cases_that_round_to_one_are_run_once_and_a_barrier_whatever_else_varies():
    assert names_of(
        collectives=["all_gather", "barrier"], ops=["sum", "max"], sizes=[8, 16, 32, 64], world=8
    ) == ["all_gather float32 32 B", "all_gather float32 64 B", "barrier float32 0 B"]
    assert names_of(collectives=["barrier"], dtypes=list(DTYPES), sizes=[8, 64], world=2) == [
        "barrier float32 0 B"
    ]


def test_no_name_is_longer_than_a_stages_and_all_differ():
    sizes = [8, 1024, 16777201, 1 << 40]
    todo = cases_of(collectives=COLLECTIVES, dtypes=DTYPES, ops=OPS, sizes=sizes, world=7)
    names = [one_pass.name for one_pass in in_turn(todo, MOST_PASSES)]
    assert max(map(len, names)) <= 47
    assert len(set(names)) == len(todo) * MOST_PASSES


def launch(world=8, nodes=2):
    return SimpleNamespace(world=world, nodes=nodes, local_world=world // nodes)


def test_ranks_are_divided_as_nccl_tests_does():
    halves, rails = [(0, 1, 2, 3), (4, 5, 6, 7)], [(0, 4), (1, 5), (2, 6), (3, 7)]
    odd = [(0, 2, 4, 6), (1, 3, 5, 7)]
    for text, groups in {
        "node": halves, "OR 0x3": halves, "DIV 4": halves, "mod 2": odd, "rail": rails,
        "AND 0x3": rails, "AND3": rails,
    }.items():  # fmt: skip
        wanted = split.parse(text)
        assert split.teams_of([wanted.color(r, r // 4, r % 4) for r in range(8)]) == groups, text
        assert wanted.size(launch()) == len(groups[0]), text


def test_nodes_are_those_of_the_hub_where_the_launcher_does_not_say():
    """Four ranks on two hosts in turn: Open MPI's --map-by node."""
    colors = []
    for rank in range(4):
        here = {"RANK": str(rank), "LOCAL_RANK": str(rank // 2), "WORLD_SIZE": "4"}
        at = replace(current(here), host=f"n{rank % 2}")
        assert not at.node_is_known
        colors.append(Split(split.NODE).color(rank, node_number(at), at.local_rank))
    assert split.teams_of(colors) == [(0, 2), (1, 3)]


def test_what_is_no_split_or_makes_groups_of_different_sizes_is_refused(golden):
    said = refusals(["", "nodes", "MOD", "MOD -2", "XOR 3", "MOD 0", "DIV 0x0", "3.5"], split.parse)
    odd = refusal(split.parse("MOD 2").size, launch(7, 1))
    uneven = SimpleNamespace(world=7, nodes=2, local_world=4)
    golden("\n".join([said, odd, refusal(Split(split.NODE).size, uneven)]))


def row_of(*passes_of_groups, backend="nccl"):
    rows, groups = [], []
    for i, passes in enumerate(passes_of_groups):
        median = sorted(passes)[len(passes) // 2]
        one = replace(ROW, backend=backend, mean_us=median, median_us=median)
        rows.append(replace(one, busbw_GBps=1e3 / median))
        groups.append((2 * i, 2 * i + 1))
    return split.joined(rows, groups, [[[t] for t in passes] for passes in passes_of_groups])


def test_a_row_has_the_figures_of_each_group_and_those_of_the_slowest_as_its_own():
    made = row_of(USUAL, (150.0, 151.0, 149.0), USUAL)
    assert made.mean_us == 150.0
    assert [group["ranks"] for group in made.groups] == [[0, 1], [2, 3], [4, 5]]
    assert made.groups[1]["passes_us"] == [150.0, 151.0, 149.0]
    assert split.groups_text(made) == "busbw GB/s of groups 0: 10.000, 1: 6.667, 2: 10.000"


def slow_group(*rows):
    run = RunState(8, {rank: RankState(rank, "n1", rank) for rank in range(8)})
    return split.slow_group(run, rows)


def test_the_group_that_is_slow_in_every_pass_is_named_and_of_two_none(golden):
    (found,) = slow_group(*[row_of(USUAL, USUAL, (150.0, 151.0, 149.0), USUAL)] * 3)
    assert (found.condition, found.cause, found.who.ranks) == ("slow", "slow-group", (4, 5))
    (two,) = slow_group(*[row_of(USUAL, (150.0, 151.0, 149.0))] * 3)
    assert (two.condition, two.who.ranks, two.confidence.level) == ("unknown", (), "low")
    golden(told(found, two))


def test_one_slow_pass_or_one_slow_case_names_no_group():
    fast, slow = row_of(USUAL, USUAL, USUAL), row_of(USUAL, (150.0, 150.0, 150.0), USUAL)
    for rows in (
        [row_of(USUAL, (150.0, 101.0, 150.0), USUAL)],
        [slow, fast, fast],
        [row_of(USUAL, (115.0,) * 3, USUAL, backend="c10d:gloo")],
        [ROW],
        [row_of((100.0,), (150.0,), (100.0,))],
    ):
        assert slow_group(*rows) == [], rows
    assert slow_group(row_of(USUAL, (115.0,) * 3, USUAL))


@pytest.mark.needs("torch")
def test_groups_over_gloo_measure_at_once_and_each_has_its_figures():
    command = ("bench", "run", "--sizes", "4K", "--collectives", "all_reduce,all_gather",
               "--split", "DIV 2", *FAST)  # fmt: skip
    verdict = job(4, command=command, deadline=60)
    assert verdict.report is not None, str(verdict)
    rows = verdict.report["data"]["rows"]
    assert [one["n"] for one in rows] == [2, 2]
    for one in rows:
        assert one["check"] == "ok"
        assert [group["ranks"] for group in one["groups"]] == [[0, 1], [2, 3]]
        assert all(group["median_us"] > 0 for group in one["groups"])
        assert one["mean_us"] == max(group["mean_us"] for group in one["groups"])
    assert "2 groups of 2 ranks" in verdict.output


@pytest.mark.needs("torch")
def test_a_rank_with_wrong_values_is_named_in_its_group():
    stage = "all_reduce float32 4 KiB"
    command = ("bench", "run", "--sizes", "4K", "--split", "MOD 2", *FAST)
    verdict = job(4, value=3, at=stage, command=command, deadline=60)
    assert verdict.names(rank=3, stage=stage), str(verdict)
    (one,) = verdict.report["data"]["rows"]
    assert [group["check"] for group in one["groups"]] == ["ok", "wrong"]


@pytest.mark.needs("torch")
def test_a_split_that_the_ranks_do_not_fit_ends_before_they_connect():
    verdict = job(3, command=("bench", "run", "--split", "MOD 2", "--sizes", "8"), deadline=90)
    assert verdict.report is None
    assert verdict.output.count("of 3 ranks it makes groups of 1 and 2") == 1
