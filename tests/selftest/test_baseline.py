"""Slowdowns against an earlier report: of single ranks, or of most ranks in the same figure."""

import json
import subprocess

import pytest

from figures import run_of, verdict
from findings_shown import check
from oddrank.errors import OddrankError
from oddrank.selftest import baseline


def before(**figures):
    return {("node0", 1): {name: ("a CPU", value) for name, value in figures.items()}}


def slower_by(shares, nodes=(4, 4), **others):
    """Returns the findings if ranks were faster before. shares: rank -> share.

    others: the same for other figures.
    """
    places = [(f"node{node}", local) for node, size in enumerate(nodes) for local in range(size)]
    then = {
        place: {
            name: ("a CPU", 100 * (1 + by.get(rank, 0)))
            for name, by in {"host_copy": shares, **others}.items()
        }
        for rank, place in enumerate(places)
    }
    return verdict(nodes, baseline=then)


def of_eight(nodes):
    """Returns the findings if the baseline is of two nodes of four ranks."""
    then = {(f"node{n}", i): {"host_copy": ("a CPU", 160.0)} for n in range(2) for i in range(4)}
    return verdict(nodes, baseline=then)


ALL = dict.fromkeys(range(8), 0.6)
SLOWER = "suspicious slower-than-baseline: "
SAID = {
    "one": (verdict([4], baseline=before(host_copy=160.0, host_read=104.0)), f"{SLOWER}1"),
    "all, one most of all": (slower_by({**ALL, 5: 2.0}), f"{SLOWER}0-7"),
    "all but one": (slower_by(dict.fromkeys(range(1, 8), 0.6)), f"{SLOWER}1-7"),
    # Only figures in which most are slower are in the sentence about most ranks.
    "in several figures": (
        slower_by(ALL, host_read={6: 3.0}, host_write=dict.fromkeys(range(5), 0.5),
                  host_compute=dict.fromkeys(range(6), 0.4)),
        f"{SLOWER}0-7",
    ),
    "fewer ranks on a node than then": (of_eight([2]), f"{SLOWER}node 0-1"),
    "fewer nodes than then": (of_eight([4]), f"{SLOWER}node 0-3"),
    "as many": (of_eight([4, 4]), f"{SLOWER}0-7"),
}  # fmt: skip
ONE_BY_ONE = {
    "each in another figure": (
        slower_by(dict.fromkeys(range(3), 0.6), host_read=dict.fromkeys(range(3, 6), 0.6)),
        range(6),
    ),
    "two": (slower_by(dict.fromkeys((2, 6), 0.6)), (2, 6)),
    "half": (slower_by(dict.fromkeys(range(4), 0.6)), range(4)),
    "the only one": (slower_by({0: 0.6}, nodes=(1,)), (0,)),
    "other hardware": (verdict([4], baseline={("node0", 1): {"host_copy": ("older", 160.0)}}), ()),
}


def test_most_ranks_that_are_slower_than_in_the_baseline_are_one_finding(golden):
    check(SAID, golden)


def test_half_of_the_ranks_or_fewer_are_named_one_by_one():
    for name, (found, ranks) in ONE_BY_ONE.items():
        assert sorted(one.who.ranks for one in found) == [(rank,) for rank in ranks], name


def test_what_to_type_shows_what_has_changed_since_the_baseline(tmp_path):
    for name, facts in (("THEN", {"torch": "2.12"}), ("NOW", {"torch": "2.13", "kernel": "6"})):
        report = {"data": {"environment": {"common": {"cuda": "13", **facts}}}}
        (tmp_path / f"{name}.json").write_text(json.dumps(report))
    (found,) = slower_by({1: 0.6})
    command = found.next[0].partition("  (")[0]
    said = subprocess.check_output(command, shell=True, cwd=tmp_path, text=True)
    assert said.splitlines() == ["torch 2.12 2.13", "kernel None 6"]


def report(**changes):
    speed = {"classes": {"host": "c"}, "facts": {}, "host_copy": [3, 1, 2], "other": ["x"]}
    row = {"rank": 0, "host": "a", "local_rank": 1, "metrics": {"speed": speed, "device": None}}
    return {
        "schema": "oddrank.report/1", "tool": "selftest", "data": {"ranks": [row]}, **changes,
    }  # fmt: skip


def test_a_baseline_of_other_hosts_is_known_as_such():
    run = run_of([4])
    assert baseline.compared(run, {}) == 0
    assert baseline.compared(run, {("node0", 1): {"host_copy": ("a CPU", 100.0)}}) > 0
    assert baseline.compared(run, {("node7", 1): {"host_copy": ("a CPU", 100.0)}}) == 0


def test_a_baseline_is_read_from_an_earlier_report(tmp_path):
    path = tmp_path / "before.json"
    path.write_text(json.dumps(report()))
    assert baseline.load(str(path)) == {("a", 1): {"host_copy": ("c", 2.0)}}


def test_a_baseline_of_another_kind_is_refused_in_a_line(tmp_path, golden):
    said = []
    for text in (
        None,
        "{",
        "[1]",
        json.dumps(report(tool="bench")),
        json.dumps(report(data={"ranks": None})),
        json.dumps(report(data={"ranks": []})),
        json.dumps(report(data={"ranks": [{"host": 1}]})),
    ):
        path = tmp_path / "before.json"
        if text is not None:
            path.write_text(text)
        with pytest.raises(OddrankError) as refused:
            baseline.load(str(path))
        assert "\n" not in str(refused.value)
        said.append(f"{text}: {refused.value}".replace(str(tmp_path), "FOLDER"))
    golden("\n".join(said))
