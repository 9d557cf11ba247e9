"""Which nodes a job should leave out: those whose hardware is at fault, and nobody's guess."""

import ast
import re
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

import oddrank
from oddrank.bench.pairs import findings as pairs_findings
from oddrank.bench.pairs.parts import Kind, Part
from oddrank.control.culprits import Cause
from oddrank.control.root import RankState
from oddrank.control.stages import Rounds
from oddrank.finding import Report, Who
from oddrank.launch import hostlist
from oddrank.selftest import exclude
from reports import finding

HOSTS = ("node3", "node7", "node12", "login")


def text(*findings, hosts=HOSTS):
    states = {rank: RankState(rank, host, rank, 0, contact="ok") for rank, host in enumerate(hosts)}
    report = Report.of("selftest", {"size": len(hosts)}, {}, findings, complete=True)
    return exclude.text(report, Rounds(len(hosts), states))


def names(*findings, **changes):
    lines = text(*findings, **changes).splitlines()
    return [line for line in lines if not line.startswith("#")]


def broken(rank=1, cause="bad-memory", condition="broken", **changes):
    return finding(rank, condition, cause, **{"who": Who("rank", (rank,)), **changes})


def test_a_file_has_a_name_a_line_why_and_the_forms_of_slurm_and_pbs():
    assert text(broken(1), broken(0), broken(2)) == (
        "# oddrank selftest: 3 nodes to leave out\n"
        "# node3: rank 0 is broken: stopped in stage all_reduce\n"
        "# node7: rank 1 is broken: stopped in stage all_reduce\n"
        "# node12: rank 2 is broken: stopped in stage all_reduce\n"
        "# SLURM: --exclude=node[3,7,12]\n"
        "# PBS: pbsnodes -o node3 node7 node12\n"
        "node3\nnode7\nnode12\n"
    )


def test_with_nobody_to_leave_out_there_are_only_comments():
    assert text() == "# oddrank selftest: no nodes to leave out\n"


def test_of_a_named_node_that_is_not_to_be_left_out_it_is_told_why_it_stays():
    said = text(broken(1, "slow-cores", "slow"), broken(0, level="low"), broken(1, "raised"))
    assert said == (
        "# oddrank selftest: no nodes to leave out\n"
        "# node3 stays: rank 0 is broken: stopped in stage all_reduce (bad-memory)\n"
        "# node7 stays: rank 1 is broken: stopped in stage all_reduce (raised)\n"
    )
    said = text(
        broken(1, "slow-cores", "slow"), broken(1), broken(2, "slow-link", who=Who("link", (0, 2)))
    )
    assert "node7 stays" not in said
    assert "# node3 stays: " in said
    assert "# node12 stays: " in said
    assert said.endswith("\nnode7\n")


def test_of_many_nodes_that_stay_some_are_told():
    hosts = [f"n{rank}" for rank in range(100)]
    said = text(*(broken(rank, "other-version") for rank in range(100)), hosts=hosts).splitlines()
    assert len(said) == 34
    assert said[-1] == "# 68 more nodes that are named stay"


@pytest.mark.parametrize(
    "harmless",
    [
        broken(level="low"),
        broken(cause="other-version", condition="different"),
        broken(cause="raised"),
        broken(cause="killed", condition="dead"),
        broken(cause="a cause that nobody has thought about"),
        broken(cause="link-cut", who=Who("link", (1, 2))),
    ],
)
def test_who_is_not_sure_or_can_be_repaired_is_not_left_out(harmless):
    assert names(harmless) == []


def test_medium_confidence_is_enough_and_a_node_stands_there_once():
    assert names(broken(level="medium"), broken(), broken(cause="uninterruptible")) == ["node7"]


def test_both_nodes_of_a_finding_are_left_out_and_a_cut_off_one():
    assert names(broken(who=Who("rank", (0, 2)))) == ["node3", "node12"]
    assert names(broken(cause="link-cut", who=Who("link", (1,)))) == ["node7"]


@pytest.mark.parametrize("host", ["", "a b", "x\n-o all", "--help", "$(reboot)", "a;b", "n" * 300])
def test_a_host_name_that_is_none_gets_into_no_command(host):
    assert names(broken(0), hosts=(host,)) == []


def test_slurm_knows_hosts_by_their_short_names():
    said = text(broken(0), broken(1), hosts=("n1.example.org", "n2.example.org"))
    assert "# SLURM: --exclude=n[1-2]\n" in said
    assert said.endswith("\nn1.example.org\nn2.example.org\n")


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        (["node3"], "node3"),
        (["node3", "node4", "node7"], "node[3-4,7]"),
        (["n08", "n09", "n10"], "n[08-10]"),
        (["n9", "n10"], "n[9-10]"),
        (["n1", "n01"], "n[1,01]"),
        (["r1n3", "r1n4", "r2n3"], "r1n[3-4],r2n3"),
        (["a1-ib", "a2-ib", "login"], "a[1-2]-ib,login"),
    ],
)
def test_names_are_folded_as_slurm_writes_them(names, folded):
    assert exclude.fold(names) == folded


@given(st.sets(st.from_regex(r"[a-z]{1,2}[0-9]{0,4}(-ib)?", fullmatch=True), min_size=1))
def test_what_is_folded_unfolds_to_the_same_names(names):
    assert set(hostlist.expand(exclude.fold(sorted(names)))) == names


# Of the shape of a cause, and none.
OTHER_WORDS = {"read-only"}


def causes_in(source):
    """Given as `cause`, by keyword or by place, or of a cause's shape, wherever it stands."""
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    takes = {
        node.name: [one.arg for one in node.args.args].index("cause")
        for node in nodes
        if isinstance(node, ast.FunctionDef) and "cause" in [one.arg for one in node.args.args]
    }
    given = [node.value for node in nodes if isinstance(node, ast.keyword) and node.arg == "cause"]
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            place = takes.get(node.func.id, len(node.args))
            given += node.args[place : place + 1]
    told = {text for value in given for text in texts(value)}
    return told | {text for text in texts(tree) if re.fullmatch("[a-z]+(-[a-z]+)+", text)}


def texts(tree):
    found = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    return {text for text in found if isinstance(text, str)}


def test_of_every_cause_it_is_decided_whether_its_node_is_left_out():
    package = Path(oddrank.__file__).parent
    files = [
        *package.glob("selftest/findings/*.py"),
        *package.glob("control/findings/*.py"),
        *(package / folder / "findings.py" for folder in ("bench", "bench/pairs")),
    ]
    told = {cause for file in files for cause in causes_in(file.read_text())}
    told |= set(get_args(Cause)) | {
        pairs_findings._cause(Part(kind, ranks), delayed)
        for kinds, delayed in ((get_args(Kind), False), (("both", "link"), True))
        for kind in kinds
        for ranks in ((0,), (0, 1))
    }
    assert told - OTHER_WORDS - set(exclude.CAUSES) == set()
    assert set(exclude.CAUSES) - told == set()


def test_a_cause_is_seen_wherever_it_is_given():
    assert causes_in("Finding(cause='a', what='b')") == {"a"}
    assert causes_in("Finding(cause='a' if x else 'c')") == {"a", "c"}
    assert causes_in("def _odd(rounds, cause, says): pass\n_odd(1, 'xid', 'text')") == {"xid"}
    assert causes_in("_SAID = {'full': ('is full', 'file-full')}") == {"file-full"}
