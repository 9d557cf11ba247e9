"""`bench pairs` on real ranks, across hosts whose network the kernel slows down."""

import sys

import pytest

import forked
from job import job
from pair_faults import (
    COMMAND,
    delayed_link,
    healthy,
    slow_link,
    slow_node,
    slow_rank,
    slow_receiver,
    slow_sender,
)
from pair_rounds import play

pytestmark = [pytest.mark.needs("torch"), pytest.mark.timeout(600)]


def prove(case):
    verdict = case.run()
    assert case.said(verdict.report) == "right", str(verdict)
    assert verdict.gone(), str(verdict)
    return verdict.report


@pytest.mark.needs("netns")
def test_healthy_hosts_are_healthy_and_the_table_is_complete():
    pairs = prove(healthy(4))["data"]["pairs"]
    assert pairs["names"] == [f"node{i}" for i in range(4)]
    for figures in (pairs["GBps"], pairs["latency_us"]):
        for i in range(4):
            assert [value is None for value in figures[i]] == [i == j for j in range(4)]
    assert pairs["inside"] == []


@pytest.mark.needs("netns")
def test_a_host_that_sends_slowly_is_named():
    prove(slow_sender(2, 3))


@pytest.mark.needs("netns")
def test_of_two_hosts_only_the_link_is_named_and_with_low_confidence():
    (finding,) = prove(slow_sender(0, 2))["findings"]
    assert finding["confidence"]["level"] == "low"


def reports_of(hosts, on_host, *cases):
    """Returns the findings of each case; one job measures all of them."""
    found = []

    def judged(number, report):
        assert cases[number].said(report) == "right", (str(cases[number]), report)
        found.append(report["findings"])

    play(hosts, on_host, cases, judged)
    return found


@pytest.mark.needs("netns")
@pytest.mark.soak
def test_a_slow_receiver_a_slow_link_and_a_delayed_link_are_named_by_their_ends():
    cases = (slow_receiver(0, 3), slow_link(0, 2, 3), delayed_link(0, 2, 3), healthy(3))
    (receiver,), (slow,), (delayed,), nothing = reports_of(3, 1, *cases)
    assert [one["who"]["kind"] for one in (receiver, slow, delayed)] == ["rank", "link", "link"]
    assert slow["evidence"][0]["value"] < slow["evidence"][0]["median"]
    assert delayed["evidence"][0]["unit"] == "us", "a delay shows as latency, and not twice"
    assert nothing == []


@pytest.mark.needs("netns")
@pytest.mark.soak
def test_a_host_whose_ranks_share_a_slow_way_out_is_named_and_a_rank_that_alone_sends_slowly():
    (node,), (rank,) = reports_of(3, 2, slow_node(1, 3, 2), slow_rank(3, 3, 2))
    assert (node["who"]["kind"], node["who"]["host"]) == ("node", "node1")
    assert rank["who"]["kind"] == "rank", "others of its host have the rest"


@pytest.mark.needs("netns")
def test_healthy_hosts_of_two_ranks_have_a_matrix_between_them_and_one_inside_each():
    case = healthy(6, on_host=2)
    verdict = case.run()
    # Inside a host other work is noise; then no rank may be named.
    assert case.said(verdict.report) in ("right", "nobody named"), str(verdict)
    pairs = verdict.report["data"]["pairs"]
    assert len(pairs["names"]) == len(pairs["GBps"]) == 3
    inside = [["rank 0", "rank 1"], ["rank 2", "rank 3"], ["rank 4", "rank 5"]]
    assert [one["names"] for one in pairs["inside"]] == inside


def test_ranks_of_one_host_meet_each_other():
    verdict = job(3, command=COMMAND, deadline=60)
    pairs = verdict.report["data"]["pairs"]
    assert pairs["names"] == ["rank 0", "rank 1", "rank 2"], str(verdict)
    assert sum(value is None for line in pairs["GBps"] for value in line) == 3
    assert verdict.gone()
    assert "GB/s, from row to column" in verdict.output


@pytest.mark.parametrize(("ranks", "fault"), [(4, "kill:rank=2"), (3, "sleep:rank=1")])
def test_a_rank_that_dies_between_two_partners_or_comes_no_further_is_named(ranks, fault):
    """With three ranks each rests in one round, and makes as many marks there as in the others."""
    verdict = job(ranks, command=COMMAND, inject=f"{fault},stage=pairs,step=done", deadline=30)
    assert verdict.names(rank=int(fault[-1]), stage="pairs"), str(verdict)
    assert verdict.report["data"]["pairs"] is None
    assert verdict.gone()


def test_what_cannot_be_done_is_one_line_and_exit_code_2(golden):
    said = []
    for options in (
        (), ("--size", "lots"), ("--size", "1M:2M"), ("--effect", "200%"), ("--effect", "nan"),
    ):  # fmt: skip
        done = forked.run([sys.executable, "-m", "oddrank", "bench", "pairs", *options], text=True)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        said.append(done.stderr)
    golden("".join(said))


def test_messages_that_no_memory_can_hold_are_refused_in_one_line():
    verdict = job(2, command=("bench", "pairs", "--size", "512G"), deadline=90)
    assert verdict.report is None
    assert verdict.output.count("has no memory for messages this large") == 1
