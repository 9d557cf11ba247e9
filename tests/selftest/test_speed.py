"""Stage speed: a slow rank or node is named once, however many figures are slow, and no other."""

import re
from random import Random

import pytest

from figures import measured, run_of, verdict
from oddrank import exclude, peers
from oddrank.report import Report
from oddrank.selftest import Options, metrics
from oddrank.selftest.findings import speed as findings
from oddrank.selftest.metrics import SPEED, Metric
from oddrank.selftest.speed_judge import look
from oddrank.selftest.stages import speed

HBM = Metric("hbm", SPEED, "HBM", "GB/s", "high", 0.03, "gpu", 9, 45)


def ranks(found):
    return [finding.who.ranks for finding in found]


@pytest.mark.parametrize("nodes", [[4], [8], [1, 1, 1], [2, 2], [4, 4, 4, 4], [1] * 40])
def test_nobody_is_named_among_equals(nodes):
    for seed in range(10):
        assert not verdict(nodes, noise=0.02, seed=seed)


@pytest.mark.parametrize("nodes", [[4], [8], [1, 1, 1], [2, 2], [4, 4, 4, 4], [1] * 40])
def test_one_slow_rank_is_named(nodes):
    (found,) = verdict(nodes, slow={"host_copy": {1: 0.5}})
    several = nodes[0] > 2
    assert (found.condition, found.who.ranks) == ("slow", (1,))
    assert found.cause == ("slow-cores" if several else "slow-rank")
    end = "; other ranks of its node are not: .*" if several else ""
    assert re.search(
        rf"slow: host memory copy 3[234]\.\d% below the median of its peers{end}$", found.what
    )


def left_out(nodes, found):
    run = run_of(nodes)
    report = Report.of("selftest", {"size": run.world}, {}, found, complete=True)
    lines = exclude.text(report, run.hosts).splitlines()
    return [line for line in lines if not line.startswith("#")]


HOST_FIGURES = [row.name for row in metrics.of_stage(SPEED) if row.scope == "host"]
# Ranks 8-11: one of two sockets of the second node; nodes have eight ranks.
A_SOCKET = {name: dict.fromkeys(range(8, 12), 0.5) for name in HOST_FIGURES}


@pytest.mark.parametrize(
    ("nodes", "slow", "cause", "hosts"),
    [
        ([4] * 4, {"host_copy": {5: 0.5}, "host_compute": {5: 1.0}}, "slow-cores", []),
        ([4] * 4, {"host_copy": {5: 0.5, 6: 0.5}}, "slow-rank", ["node1"]),
        ([4] * 4, {"host_copy": {5: 0.5}, "host_read": {6: 0.5}}, "slow-rank", ["node1"]),
        ([8] * 4, A_SOCKET, "slow-rank", ["node1"]),
        ([4] * 4, {"host_copy": {5: 0.5, 9: 0.5}}, "slow-cores", []),
        ([3] * 4, {"host_copy": {5: 0.5}}, "slow-cores", []),
        ([2] * 4, {"host_copy": {5: 0.5}}, "slow-rank", ["node2"]),
        ([4] * 4, {"host_copy": {5: 0.5}, "gpu_copy": {5: 0.5}}, "slow-rank", ["node1"]),
        ([4] * 4, {"gpu_copy": {5: 0.5}}, "slow-rank", ["node1"]),
        ([1] * 8, {"host_copy": {5: 0.5}}, "slow-rank", ["node5"]),
        ([4] * 4, {"host_copy": dict.fromkeys(range(4, 8), 0.5)}, "slow-node", ["node1"]),
    ],
)
def test_the_host_of_the_only_one_of_its_ranks_that_is_slow_on_its_cores_is_not_left_out(
    nodes, slow, cause, hosts
):
    """A foreign process is likelier than hardware. Slow GPUs, sockets and nodes are left out."""
    found = verdict(nodes, slow=slow)
    assert {one.cause for one in found} == {cause}
    assert left_out(nodes, found) == hosts
    assert all(one.next[0].startswith("ps ") == (cause == "slow-cores") for one in found)


def test_whoever_is_slow_in_several_figures_is_named_once_with_all_of_them():
    (found,) = verdict([8], slow={"host_copy": {3: 0.5}, "host_read": {3: 1.0}})
    assert found.who.ranks == (3,)
    assert found.what.startswith("rank 3 (node0, local rank 3) is slow: host memory read ")
    assert ", host memory copy 3" in found.what
    assert [evidence.source for evidence in found.evidence] == ["host_read", "host_copy"]


def test_the_slowest_is_told_first():
    found = verdict([8], slow={"host_copy": {3: 0.4}, "host_read": {5: 1.0}})
    assert ranks(found) == [(5,), (3,)]
    summary = Report.of("selftest", {}, {}, found, complete=True).summary
    assert summary.startswith("rank 5 ")


def test_what_differs_about_a_slow_rank_is_told_with_it():
    facts = {rank: {"PCIe": "gen4 x8" if rank == 2 else "gen5 x16"} for rank in range(8)}
    (found,) = verdict([8], slow={"host_copy": {2: 0.5}}, facts=facts)
    assert "; PCIe gen4 x8, its peers gen5 x16; " in found.what


QUOTA = {"held_back": 0.9, "facts": {"CPU quota": "0.4 cores"}}


@pytest.mark.parametrize(("held", "named"), [([2], [(2,)]), ([0, 1, 2], []), ([4, 5], [(4, 5)])])
def test_who_is_held_back_by_a_quota_that_most_have_not_is_named(held, named):
    run = run_of([4, 2])
    run.results[SPEED] = measured(run, Random(1), noise=0.01)
    for rank in held:
        run.results[SPEED][rank] |= QUOTA
    found = speed.stage(Options()).conclude(run)
    assert [one.who.ranks for one in found if one.cause == "cpu-quota"] == named


@pytest.mark.parametrize("held", [[2], [4, 5, 6], [4, 5, 6, 7]])
def test_a_quota_explains_why_the_hosts_figures_are_slow(held):
    slow = {name: dict.fromkeys(held, 1.0) for name in HOST_FIGURES}
    found = verdict([4] * 4, slow=slow, more=dict.fromkeys(held, QUOTA))
    assert [(one.cause, one.who.ranks) for one in found] == [("cpu-quota", tuple(held))]


def test_a_quota_explains_neither_a_slow_gpu_nor_another_rank():
    slow = {"host_copy": {2: 1.0, 5: 0.5}, "gpu_copy": {2: 0.5}}
    found = verdict([4] * 4, slow=slow, more={2: QUOTA})
    assert [(one.cause, one.who.ranks, len(one.evidence)) for one in found] == [
        ("slow-rank", (2,), 1),
        ("slow-cores", (5,), 1),
        ("cpu-quota", (2,), 1),
    ]


def test_where_half_are_slow_nobody_is_surely_the_odd_one():
    found = verdict([8], slow={"host_copy": dict.fromkeys(range(4), 1.0)})
    assert {one.confidence.level for one in found} == {"low"}
    (found,) = verdict([8], slow={"host_copy": {1: 1.0}})
    assert found.confidence.level == "high"


def test_of_two_ranks_the_slower_one_is_no_sure_name():
    (found,) = verdict([2], slow={"host_copy": {1: 0.5}})
    assert (found.who.ranks, found.confidence.level) == ((1,), "low")


@pytest.mark.parametrize(
    ("varying", "told"),
    [
        ([], "; smallest slowdown this run could detect: {most:.0%} (host)"),
        (
            ["host_compute"],
            "; smallest slowdown this run could detect: {most:.0%} (host)"
            "; host arithmetic varies too much to compare",
        ),
        (
            ["host_read", "host_compute"],
            "; smallest slowdown this run could detect: {most:.0%} (host)"
            "; host memory read, host arithmetic vary too much to compare",
        ),
        (HOST_FIGURES, "; the speed of the host varies too much to compare"),
    ],
)
def test_a_healthy_run_tells_what_it_could_have_seen_and_which_figures_vary(varying, told):
    run, random = run_of([4]), Random(3)
    quiet, noisy = measured(run, random, noise=0.01), measured(run, random, noise=1.0)
    results = {
        rank: quiet[rank] | {name: noisy[rank][name] for name in varying} for rank in run.states
    }
    run.results[SPEED] = results
    compared = look(run, results)
    seen = [one.visible() for one in compared.classes if one.metric.name not in varying]
    assert findings.smallest_seen(compared) == told.format(most=max(seen, default=0.0))


def test_a_slow_node_is_named_and_not_its_ranks():
    slow = {"host_copy": dict.fromkeys(range(4, 8), 0.5)}
    (found,) = verdict([4, 4, 4, 4], slow=slow)
    assert (found.cause, found.who.kind, found.who.host) == ("slow-node", "node", "node1")
    assert found.confidence.level == "high"


def test_half_of_the_ranks_slow_is_their_node_and_of_two_nodes_no_sure_name():
    (found,) = verdict([4, 4], slow={"host_copy": dict.fromkeys(range(4), 0.5)})
    assert (found.who.host, found.confidence.level) == ("node0", "low")


def of_hbm(monkeypatch, nodes, slow, figures=1, *, noise=0.001, repeats=(9, 45)):
    """Returns the findings after the recheck. slow: rank -> slowdown in each figure of a GPU."""
    table = tuple(
        Metric(f"hbm{i}", SPEED, "HBM", "GB/s", "high", 0.03, "gpu", *repeats)
        for i in range(figures)
    )
    monkeypatch.setattr(metrics, "TABLE", table)
    return verdict(nodes, slow={one.name: slow for one in table}, noise=noise)


def test_two_nodes_can_not_tell_a_slow_one_from_one_that_is_healthy(monkeypatch):
    slow = dict.fromkeys(range(4), 0.026)
    (found,) = of_hbm(monkeypatch, [4, 4], slow)
    assert found.condition == "unknown"
    (found,) = of_hbm(monkeypatch, [4] * 4, slow)
    assert (found.cause, found.who.ranks) == ("slow-node", (0, 1, 2, 3))
    (found,) = of_hbm(monkeypatch, [4, 4], dict.fromkeys(range(4), 0.035))
    assert (found.cause, found.confidence.level) == ("slow-node", "low")


def test_those_who_lag_a_little_do_not_hide_one_that_lags_more(monkeypatch):
    a_little = {rank: 0.012 for rank in range(0, 512, 5) if rank != 77}
    many = {"noise": 0.02, "repeats": (25, 400)}
    (found,) = of_hbm(monkeypatch, [8] * 64, a_little | {77: 0.03}, **many)
    assert (found.cause, found.who.ranks) == ("slow-rank", (77,))


@pytest.mark.parametrize("figures", [1, 3, 5])
@pytest.mark.parametrize("nodes", [[8], [4, 4], [8, 8], [8] * 4])
def test_if_half_of_the_ranks_are_slow_all_of_them_are_told_and_none_is_surely_odd(
    monkeypatch, nodes, figures
):
    half, size = sum(nodes) // 2, nodes[0]
    found = of_hbm(monkeypatch, nodes, dict.fromkeys(range(half), 0.2), figures)
    slow = [tuple(range(first, first + size)) for first in range(0, half, size)]
    if len(nodes) == 1:
        slow = [(rank,) for rank in range(half)]
    assert sorted(one.who.ranks for one in found) == slow
    assert {one.cause for one in found} == {"slow-rank" if len(nodes) == 1 else "slow-node"}
    assert {one.confidence.level for one in found} == {"low"}


def test_a_rank_that_is_slow_in_a_node_that_is_not_named_for_it(monkeypatch):
    slow = {0: 0.032, **dict.fromkeys(range(1, 8), 0.012)}
    (found,) = of_hbm(monkeypatch, [8] * 4, slow)
    assert found.who.ranks == (0,)
    (found,) = of_hbm(monkeypatch, [2, 2], {0: 0.036, 1: 0.013})
    assert found.condition == "unknown"


def test_a_rank_that_is_much_slower_than_its_slow_node_is_named_too():
    slow = {"host_copy": {**dict.fromkeys(range(4, 8), 0.4), 6: 3.0}}
    found = verdict([4, 4, 4, 4], slow=slow)
    assert [(f.who.kind, f.who.ranks) for f in found] == [("rank", (6,)), ("node", (4, 5, 6, 7))]
    assert [f.cause for f in found] == ["slow-rank", "slow-node"]


def test_one_slow_rank_of_a_node_of_two_is_not_its_node():
    (found,) = verdict([2, 2, 2, 2], slow={"host_copy": {3: 1.0}})
    assert (found.cause, found.who.ranks) == ("slow-rank", (3,))


def test_other_hardware_is_not_slower():
    classes = {rank: "old" if rank < 4 else "new" for rank in range(8)}
    slow = {"host_copy": dict.fromkeys(range(4), 0.5)}
    assert not verdict([8], slow=slow, classes=classes)
    (found,) = verdict([8], slow={"host_copy": {2: 0.5}}, classes=classes)
    assert found.who.ranks == (2,)


def test_who_is_slow_only_once_is_not_named():
    assert not verdict([8], only_at_first={"host_copy": {2: 0.5}})


def test_a_hosts_figures_that_vary_too_much_are_no_finding():
    for seed in range(20):
        found = verdict([4], slow={"host_compute": {2: 0.25}}, noise=0.3, seed=seed)
        assert all(finding.who.ranks == (2,) for finding in found)
        assert not verdict([4], noise=0.3, seed=seed)


def test_a_gpus_figures_that_vary_too_much_are_unknown_and_name_nobody(monkeypatch):
    monkeypatch.setattr(metrics, "TABLE", (HBM,))
    conditions = set()
    for seed in range(20):
        found = verdict([4], slow={"hbm": {2: 0.05}}, noise=0.1, seed=seed)
        conditions |= {finding.condition for finding in found}
    assert conditions == {"unknown"}


def test_a_small_effect_on_a_shared_host_is_not_judged():
    assert not verdict([8], slow={"host_copy": {2: 0.10}})


def test_whoever_measured_nothing_is_not_compared():
    run = run_of([4])
    run.results[SPEED] = measured(run, Random(1), noise=0.01)
    run.results[SPEED][1].pop("host_copy")
    run.results[SPEED][2]["host_copy"] = [0.0, 1.0]
    assert not speed.stage(Options()).conclude(run)
    assert {len(one.ranks.peers) for one in run.judged[SPEED].look.classes} == {2, 4}


def test_a_rank_without_peers_is_told_as_such():
    run = run_of([3])
    run.results[SPEED] = measured(run, Random(1), noise=0.01, classes={1: "old"})
    assert not speed.stage(Options()).conclude(run)
    assert findings.smallest_seen(run.judged[SPEED].look).endswith(
        "rank 1 has no peer to compare with"
    )


def test_a_doubt_that_nobody_measured_again_is_unknown():
    run = run_of([8])
    run.results[SPEED] = measured(run, Random(1), noise=0.01, slow={"host_copy": {2: 0.5}})
    (found,) = speed.stage(Options()).conclude(run)
    assert (found.condition, found.who.ranks) == ("unknown", (2,))


def test_slow_ranks_that_are_too_many_to_measure_again_are_not_passed_over():
    slow = {"host_copy": dict.fromkeys(range(0, 1200, 4), 0.6)}
    found = verdict([1] * 1200, slow=slow)
    named = [finding for finding in found if finding.condition == "slow"]
    (left,) = (finding for finding in found if finding.condition == "unknown")
    assert len(named) + len(left.who.ranks) == 300
    assert left.cause == "not-measured-again"


def test_ten_thousand_ranks_are_compared_in_one_pass_a_figure(monkeypatch):
    run = run_of([8] * 1250)
    run.results[SPEED] = measured(run, Random(1), noise=0.01, slow={"host_copy": {7: 0.5}})
    calls = []
    compare = peers.compare

    def counted(values, **more):
        calls.append(len(values))
        return compare(values, **more)

    monkeypatch.setattr(peers, "compare", counted)
    speed.stage(Options()).conclude(run)
    assert sorted(calls) == [1250] * 4 + [10_000] * 4
