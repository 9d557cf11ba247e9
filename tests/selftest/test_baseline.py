"""Slowdowns against an earlier report: of single ranks, or of most ranks in the same figure."""

import json
import re
import subprocess

import pytest

from figures import run_of, verdict
from oddrank.errors import OddrankError
from oddrank.selftest import baseline


def ranks(found):
    return [finding.who.ranks for finding in found]


def before(**figures):
    return {("node0", 1): {name: ("a CPU", value) for name, value in figures.items()}}


def test_whoever_is_slower_than_its_baseline_is_told():
    (found,) = verdict([4], baseline=before(host_copy=160.0, host_read=104.0))
    assert (found.condition, found.cause) == ("suspicious", "slower-than-baseline")
    assert found.who.ranks == (1,)
    assert "host memory copy 37" in found.what
    assert "read" not in found.what


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


def test_where_nearly_all_are_slower_than_their_baseline_it_is_one_finding():
    (found,) = slower_by({**dict.fromkeys(range(8), 0.6), 5: 2.0})
    assert (found.cause, found.who.ranks) == ("slower-than-baseline", tuple(range(8)))
    assert re.fullmatch(
        "all 8 ranks are slower than in the baseline: host memory copy by 3[678]% in the median;"
        " most of all rank 5",
        found.what,
    )
    (evidence,) = found.evidence
    assert evidence.source == "host_copy"
    assert evidence.text.startswith("ranks 0-7: host memory copy 37.")
    (found,) = slower_by(dict.fromkeys(range(1, 8), 0.6))
    assert found.what.startswith("7 of 8 ranks are slower ")
    assert found.who.ranks == tuple(range(1, 8))


def test_in_the_sentence_about_most_ranks_are_only_figures_in_which_most_are_slower():
    most = dict.fromkeys(range(8), 0.6)
    (found,) = slower_by(most, host_read={6: 3.0}, host_write=dict.fromkeys(range(5), 0.5),
                         host_compute=dict.fromkeys(range(6), 0.4))  # fmt: skip
    assert re.search(
        "^all 8 ranks .*: host memory copy by 3[678]% in the median, host memory write by 3[234]%,"
        " 2 more figures; most of all rank [0-7]$",
        found.what,
    )
    sources = [evidence.source for evidence in found.evidence]
    assert sources == ["host_copy", "host_write", "host_compute", "host_read"]
    assert re.match(
        r"rank 6: host memory read 7\d\.\d% below the baseline;", found.evidence[3].text
    )


def test_where_in_no_figure_most_are_slower_they_are_named_one_by_one():
    found = slower_by(dict.fromkeys(range(3), 0.6), host_read=dict.fromkeys(range(3, 6), 0.6))
    assert sorted(ranks(found)) == [(rank,) for rank in range(6)]


@pytest.mark.parametrize(
    ("nodes", "ends", "level"),
    [
        ([2], "; node0 had 4 ranks then and has 2 now", "low"),
        ([4], "; the baseline is of 8 ranks, this run of 4", "medium"),
        ([4, 4], "most of all rank [0-7]", "medium"),
    ],
)
def test_a_baseline_with_another_number_of_ranks_is_told_as_such(nodes, ends, level):
    then = {(f"node{n}", i): {"host_copy": ("a CPU", 160.0)} for n in range(2) for i in range(4)}
    (found,) = verdict(nodes, baseline=then)
    assert re.search(f"{ends}$", found.what)
    assert found.confidence.level == level


def test_what_to_type_shows_what_has_changed_since_the_baseline(tmp_path):
    for name, facts in (("THEN", {"torch": "2.12"}), ("NOW", {"torch": "2.13", "kernel": "6"})):
        report = {"data": {"environment": {"common": {"cuda": "13", **facts}}}}
        (tmp_path / f"{name}.json").write_text(json.dumps(report))
    (found,) = slower_by({1: 0.6})
    command = found.next[0].partition("  (")[0]
    said = subprocess.check_output(command, shell=True, cwd=tmp_path, text=True)
    assert said.splitlines() == ["torch 2.12 2.13", "kernel None 6"]


def test_half_of_the_ranks_or_fewer_are_named_one_by_one():
    assert ranks(slower_by(dict.fromkeys((2, 6), 0.6))) == [(2,), (6,)]
    assert sorted(ranks(slower_by(dict.fromkeys(range(4), 0.6)))) == [(0,), (1,), (2,), (3,)]
    assert ranks(slower_by({0: 0.6}, nodes=(1,))) == [(0,)]


def test_a_baseline_of_other_hardware_says_nothing():
    assert not verdict([4], baseline={("node0", 1): {"host_copy": ("older", 160.0)}})


def report(**changes):
    speed = {"classes": {"host": "c"}, "facts": {}, "host_copy": [3, 1, 2], "other": ["x"]}
    row = {"rank": 0, "host": "a", "local_rank": 1, "metrics": {"speed": speed, "device": None}}
    return {
        "schema": "oddrank.report/1", "tool": "selftest", "data": {"ranks": [row]}, **changes,
    }  # fmt: skip


@pytest.mark.parametrize(("host", "others"), [("node0", False), ("node7", True)])
def test_a_baseline_of_other_hosts_is_known_as_such(host, others):
    run = run_of([4])
    assert baseline.compared(run, {}) == 0
    before = {(host, 1): {"host_copy": ("a CPU", 100.0)}}
    assert (baseline.compared(run, before) == 0) == others


def test_a_baseline_is_read_from_an_earlier_report(tmp_path):
    path = tmp_path / "before.json"
    path.write_text(json.dumps(report()))
    assert baseline.load(str(path)) == {("a", 1): {"host_copy": ("c", 2.0)}}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is no JSON"),
        ("[1]", "no figures"),
        (json.dumps(report(tool="bench")), "no report of oddrank selftest"),
        (json.dumps(report(data={"ranks": None})), "no figures"),
        (json.dumps(report(data={"ranks": []})), "no figures"),
        (json.dumps(report(data={"ranks": [{"host": 1}]})), "no figures"),
    ],
)
def test_a_baseline_of_another_kind_is_refused_in_a_line(tmp_path, text, words):
    path = tmp_path / "before.json"
    path.write_text(text)
    with pytest.raises(OddrankError, match=words) as refused:
        baseline.load(str(path))
    assert "\n" not in str(refused.value)


def test_a_baseline_that_is_not_there_is_refused_in_a_line(tmp_path):
    with pytest.raises(OddrankError, match=r"can't read .*none\.json: No such file"):
        baseline.load(str(tmp_path / "none.json"))
