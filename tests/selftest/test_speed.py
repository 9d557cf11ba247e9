"""Stage speed: a slow rank or node is named once, however many figures are slow, and no other."""

from random import Random

from figures import measured, run_of, verdict
from findings_shown import brief
from oddrank import exclude, peers
from oddrank.report import Report
from oddrank.selftest import Options, speed_judge
from oddrank.selftest.speed_judge import SPEED, Metric, look
from oddrank.selftest.stages import speed
from selftest.said import check

HBM = Metric("hbm", "HBM", "GB/s", 0.03, "gpu", 9, 45)
SIZES = ([4], [8], [1, 1, 1], [2, 2], [4, 4, 4, 4], [1] * 40)


def test_nobody_is_named_among_equals_and_one_slow_rank_is():
    for nodes in SIZES:
        for seed in range(10):
            assert not verdict(nodes, noise=0.02, seed=seed), nodes
        cause = "slow-cores" if nodes[0] > 2 else "slow-rank"
        assert brief(verdict(nodes, slow={"host_copy": {1: 0.5}})) == f"slow {cause}: 1", nodes


def left_out(found):
    hosts = {rank: one.who.host for one in found for rank in one.who.ranks}
    report = Report.of("selftest", {"size": 32}, {}, found, complete=True)
    lines = exclude.text(report, hosts).splitlines()
    return [line for line in lines if not line.startswith("#")]


HOST_FIGURES = [row.name for row in speed_judge.TABLE if row.scope == "host"]
# Ranks 8-11: one of two sockets of the second node; nodes have eight ranks.
A_SOCKET = {name: dict.fromkeys(range(8, 12), 0.5) for name in HOST_FIGURES}
FOURS = [4] * 4
A_NODE = dict.fromkeys(range(4, 8), 0.5)


def copies(by, nodes=(8,), **more):
    """Returns the findings if ranks copy the host's memory slower by this share."""
    return verdict(nodes, slow={"host_copy": by}, **more)


def slow_in(*nodes, **slow):
    """Returns the findings if ranks are slower in these figures."""
    return verdict(nodes, slow=slow)


# Slow cores of one rank: a foreign process is likelier than hardware.
CORES, RANK, NODE = (f"slow slow-{what}: " for what in ("cores", "rank", "node"))
OLD = dict.fromkeys(range(4), "old")
# Behind | stands the host to leave out.
SAID = {
    f"{CORES}5": {"one on its cores": copies({5: 0.5}, FOURS)},
    f"{CORES}3": {"two figures of one": slow_in(8, host_copy={3: 0.5}, host_read={3: 1.0})},
    f"{RANK}5, 3|node0": {"the slowest first": slow_in(8, host_copy={3: 0.4}, host_read={5: 1.0})},
    f"{RANK}3|node1": {"one of a node of two": copies({3: 1.0}, [2] * 4)},
    f"{RANK}1": {"one of two": copies({1: 0.5}, [2])},
    f"{NODE}node 4-7|node1": {"a node": copies(A_NODE, FOURS)},
    f"{NODE}node 0-3": {"one of two nodes": copies(dict.fromkeys(range(4), 0.5), [4, 4])},
    f"{RANK}6; {NODE}node 4-7|node1": {
        "one much slower than its slow node": copies({**A_NODE, 6: 3.0}, FOURS)
    },
}
OTHERS = {
    f"{CORES}5": {
        "two figures of the host": slow_in(*FOURS, host_copy={5: 0.5}, host_compute={5: 1.0}),
        "one of three": copies({5: 0.5}, [3] * 4),
    },
    f"{RANK}6, 5|node1": {
        "two on their cores": copies({5: 0.5, 6: 0.5}, FOURS),
        "two in two figures": slow_in(*FOURS, host_copy={5: 0.5}, host_read={6: 0.5}),
    },
    f"{RANK}8, 9, 11, 10|node1": {"a socket": slow_in(8, 8, 8, 8, **A_SOCKET)},
    f"{CORES}9, 5": {"one each of two nodes": copies({5: 0.5, 9: 0.5}, FOURS)},
    f"{RANK}5|node5": {"the only one of a node": copies({5: 0.5}, [1] * 8)},
    f"{RANK}5|node1": {
        "host and GPU": slow_in(*FOURS, host_copy={5: 0.5}, gpu_copy={5: 0.5}),
        "GPU": slow_in(*FOURS, gpu_copy={5: 0.5}),
    },
    f"{CORES}2": {"one among its own hardware": copies({2: 0.5}, classes=OLD)},
    "": {
        "other hardware": copies(dict.fromkeys(range(4), 0.5), classes=OLD),
        "only once": verdict([8], only_at_first={"host_copy": {2: 0.5}}),
        "a small effect on a shared host": copies({2: 0.10}),
    },
}


def test_a_slow_rank_or_node_is_named_once_with_all_its_figures(golden):
    check({what.partition("|")[0]: rows for what, rows in SAID.items()}, golden)
    for what, rows in (*SAID.items(), *OTHERS.items()):
        said, _, host = what.partition("|")
        check({said: rows})
        for name, found in rows.items():
            assert ",".join(left_out(found)) == host, name
            for one in found:  # somebody may use those cores
                assert one.next[0].startswith("ps ") == (one.cause == "slow-cores"), name


def test_a_healthy_run_tells_what_it_could_have_seen_and_which_figures_vary(golden):
    run, random, said = run_of([4]), Random(3), []
    quiet, noisy = measured(run, random, noise=0.01), measured(run, random, noise=1.0)
    for varying in ([], ["host_compute"], ["host_read", "host_compute"], HOST_FIGURES):
        results = {
            rank: quiet[rank] | {name: noisy[rank][name] for name in varying} for rank in run.states
        }
        run.results[SPEED] = results
        said.append(f"{', '.join(varying)}{speed.smallest_seen(look(run, results))}")
    golden("\n".join(said))


def of_hbm(monkeypatch, nodes, slow, figures=1, *, noise=0.001, repeats=(9, 45)):
    """Returns the findings after the recheck. slow: rank -> slowdown in each figure of a GPU."""
    table = tuple(Metric(f"hbm{i}", "HBM", "GB/s", 0.03, "gpu", *repeats) for i in range(figures))
    monkeypatch.setattr(speed_judge, "TABLE", table)
    return verdict(nodes, slow={one.name: slow for one in table}, noise=noise)


A_LITTLE = {rank: 0.012 for rank in range(0, 512, 5) if rank != 77}
# Ranks of each node, how much slower they are, and what is said; more: of the measurement.
OF_HBM = (
    ([4, 4], dict.fromkeys(range(4), 0.026), "unknown unsure: 0-3, low"),
    ([4] * 4, dict.fromkeys(range(4), 0.026), f"{NODE}node 0-3, high"),
    ([4, 4], dict.fromkeys(range(4), 0.035), f"{NODE}node 0-3, low"),
    # Those who lag a little do not hide one that lags more.
    ([8] * 64, A_LITTLE | {77: 0.03}, f"{RANK}77, high", {"noise": 0.02, "repeats": (25, 400)}),
    # In a node that is not named for it.
    ([8] * 4, {0: 0.032, **dict.fromkeys(range(1, 8), 0.012)}, f"{RANK}0, high"),
    ([2, 2], {0: 0.036, 1: 0.013}, "unknown unsure: 0-1, low"),
)


def test_figures_of_gpus_name_whom_they_can_tell_from_healthy_ones(monkeypatch):
    for nodes, slow, said, *more in OF_HBM:
        found = of_hbm(monkeypatch, nodes, slow, **dict(*more))
        assert f"{brief(found)}, {found[0].confidence.level}" == said, (nodes, slow)


def test_if_half_of_the_ranks_are_slow_all_of_them_are_told_and_none_is_surely_odd(monkeypatch):
    for nodes in ([8], [4, 4], [8, 8], [8] * 4):
        half, size = sum(nodes) // 2, nodes[0] if len(nodes) > 1 else 1
        slow = [tuple(range(first, first + size)) for first in range(0, half, size)]
        cause = "slow-node" if len(nodes) > 1 else "slow-rank"
        for figures in (1, 3, 5):
            found = of_hbm(monkeypatch, nodes, dict.fromkeys(range(half), 0.2), figures)
            assert sorted(one.who.ranks for one in found) == slow
            assert {(one.cause, one.confidence.level) for one in found} == {(cause, "low")}


def test_a_hosts_figures_that_vary_too_much_are_no_finding():
    for seed in range(20):
        found = verdict([4], slow={"host_compute": {2: 0.25}}, noise=0.3, seed=seed)
        assert all(finding.who.ranks == (2,) for finding in found)
        assert not verdict([4], noise=0.3, seed=seed)


def test_a_gpus_figures_that_vary_too_much_are_unknown_and_name_nobody(monkeypatch):
    monkeypatch.setattr(speed_judge, "TABLE", (HBM,))
    conditions = set()
    for seed in range(20):
        found = verdict([4], slow={"hbm": {2: 0.05}}, noise=0.1, seed=seed)
        conditions |= {finding.condition for finding in found}
    assert conditions == {"unknown"}


def first_look(nodes, slow=None, noise=0.01, **more):
    """Returns a run that has measured once, and its findings."""
    run = run_of(nodes)
    run.results[SPEED] = measured(run, Random(1), noise=noise, slow=slow, **more)
    return run, speed.stage(Options()).conclude(run)


def test_who_measured_nothing_is_not_compared_and_who_has_no_peer_or_is_in_doubt_is_told():
    run, _ = first_look([4])
    run.results[SPEED][1].pop("host_copy")
    run.results[SPEED][2]["host_copy"] = [0.0, 1.0]
    assert not speed.stage(Options()).conclude(run)
    assert {len(one.ranks.peers) for one in run.judged[SPEED].look.classes} == {2, 4}
    run, found = first_look([3], classes={1: "old"})
    assert not found
    told = speed.smallest_seen(run.judged[SPEED].look)
    assert told.endswith("rank 1 has no peer to compare with")
    _, found = first_look([8], {"host_copy": {2: 0.5}})
    assert brief(found) == "unknown not-measured-again: 2"


def test_slow_ranks_that_are_too_many_to_measure_again_are_not_passed_over():
    slow = {"host_copy": dict.fromkeys(range(0, 1200, 4), 0.6)}
    found = verdict([1] * 1200, slow=slow)
    named = [finding for finding in found if finding.condition == "slow"]
    (left,) = (finding for finding in found if finding.condition == "unknown")
    assert len(named) + len(left.who.ranks) == 300
    assert left.cause == "not-measured-again"


def test_ten_thousand_ranks_are_compared_in_one_pass_a_figure(monkeypatch):
    calls, compare = [], peers.compare

    def counted(values, **more):
        calls.append(len(values))
        return compare(values, **more)

    monkeypatch.setattr(peers, "compare", counted)
    first_look([8] * 1250, {"host_copy": {7: 0.5}})
    assert sorted(calls) == [1250] * 4 + [10_000] * 4


# GPUs that others use, too: neither named slow nor a reference for others.
def doubted(slow, shared=()):
    """Returns the suspects of the first measurement, if others use the GPUs of these ranks."""
    run = run_of([8, 8])
    run.results[SPEED] = measured(run, Random(1), noise=0.002, slow=slow)
    run.results["health"] = {
        rank: {"pid": 1, "processes": [1, 2] if rank in shared else [1]} for rank in range(16)
    }
    found = speed.stage(Options()).conclude(run)
    return {rank for finding in found for rank in finding.who.ranks}


def test_a_gpu_that_others_use_is_not_called_slow_and_its_host_is_compared_all_the_same():
    for figure in ("gpu_copy", "gemm_bf16", "pcie_to_host"):
        assert doubted({figure: {5: 0.5}}) == {5}
        assert doubted({figure: {5: 0.5}}, shared={5}) == set()
    assert doubted({"host_copy": {5: 2.0}}, shared={5}) == {5}


# The recheck: which ranks measure again, beside which, and its message.
def test_only_the_doubted_and_a_few_good_ones_measure_again_and_only_what_is_in_doubt():
    run, _ = first_look([8] * 32, {"host_copy": {7: 0.5}})
    plan = speed.recheck(Options()).plan(run)
    assert list(plan["repeats"]) == list(plan["ranks"]) == ["host_copy"]
    assert 7 in plan["ranks"]["host_copy"]
    assert 10 < len(plan["ranks"]["host_copy"]) < 80


def graded(doubted):
    """Returns the recheck's plan if each node is slower than the one before, beside suspects."""
    by = {rank: 0.002 * (rank // 8) for rank in range(8 * 64)} | dict.fromkeys(doubted, 0.8)
    return first_look([8] * 64, {"host_copy": by}, 0.0001)[0].judged[SPEED].doubted


def test_beside_doubted_ranks_of_a_large_class_the_most_usual_others_measure_again():
    planned = graded([8 * 31 + 2])
    usual = [*range(28, 31), *range(32, 36)]
    partners = planned.partners["host_copy"]
    assert partners > {8 * node + local for node in usual for local in range(8)}
    assert planned.good["host_copy"] == partners
    (other,) = {rank // 8 for rank in partners} - set(usual)
    assert other in (27, 36)
    assert len(partners) == 64
    doubted = range(0, 8 * 64, 8)  # no whole node is left
    partners = graded(doubted).partners["host_copy"]
    assert len(partners) == 64
    assert not partners & set(doubted)
    assert (min(partners) > 200, max(partners) < 350) == (True, True)
