"""The list of nodes to leave out: only nodes whose hardware is surely at fault."""

import ast
import re
from pathlib import Path
from typing import get_args

import oddrank
from oddrank import exclude
from oddrank.bench.pairs import findings as pairs_findings
from oddrank.bench.pairs.matrix import Kind, Part
from oddrank.control.stages import RankState, RunState
from oddrank.finding import Who
from oddrank.report import Report
from reports import finding

HOSTS = ("node3", "node7", "node12", "login")


def text(*findings, hosts=HOSTS, nodelist=()):
    states = {rank: RankState(rank, host, rank, 0, contact="ok") for rank, host in enumerate(hosts)}
    report = Report.of("selftest", {"size": len(hosts)}, {}, findings, complete=True)
    return exclude.text(report, RunState(len(hosts), states).hosts, nodelist)


def names(*findings, **changes):
    lines = text(*findings, **changes).splitlines()
    return [line for line in lines if not line.startswith("#")]


def broken(rank=1, cause="bad-memory", condition="broken", **changes):
    changes = {"who": Who("rank", (rank,)), "drains_node": True, **changes}
    return finding(rank, condition, cause, **changes)


def test_a_file_has_a_name_a_line_why_and_the_forms_of_slurm_and_pbs():
    assert text(broken(1), broken(0), broken(2)) == (
        "# oddrank selftest: 3 nodes to leave out\n"
        "# node3: rank 0 is broken: stopped in stage all_reduce\n"
        "# node7: rank 1 is broken: stopped in stage all_reduce\n"
        "# node12: rank 2 is broken: stopped in stage all_reduce\n"
        "# SLURM: --exclude=node3,node7,node12\n"
        "# PBS: pbsnodes -o node3 node7 node12\n"
        "node3\nnode7\nnode12\n"
    )


def test_with_nobody_to_leave_out_there_are_only_comments():
    assert text() == "# oddrank selftest: no nodes to leave out\n"


def test_of_a_named_node_that_is_not_to_be_left_out_it_is_told_why_it_stays():
    cores = broken(1, "slow-cores", "slow", drains_node=False)
    said = text(cores, broken(0, level="low"), broken(1, "raised", drains_node=False))
    assert said == (
        "# oddrank selftest: no nodes to leave out\n"
        "# node3 stays: rank 0 is broken: stopped in stage all_reduce (bad-memory)\n"
        "# node7 stays: rank 1 is broken: stopped in stage all_reduce (raised)\n"
    )
    said = text(
        broken(1, "slow-cores", "slow", drains_node=False),
        broken(1),
        broken(2, "slow-link", who=Who("link", (0, 2))),
    )
    assert "node7 stays" not in said
    assert "# node3 stays: " in said
    assert "# node12 stays: " in said
    assert said.endswith("\nnode7\n")


def test_of_many_nodes_that_stay_some_are_told():
    hosts = [f"n{rank}" for rank in range(100)]
    said = text(
        *(broken(rank, "other-version", drains_node=False) for rank in range(100)), hosts=hosts
    ).splitlines()
    assert len(said) == 34
    assert said[-1] == "# 68 more nodes that are named stay"


def test_only_nodes_whose_hardware_is_surely_at_fault_are_left_out_once_each():
    link = Who("link", (1, 2))
    for harmless in (
        broken(level="low"), broken(drains_node=False),
        finding(1, "dead", "a cause that nobody has thought about"),
        broken(cause="link-cut", who=link),
    ):  # fmt: skip
        assert names(harmless) == [], harmless
    assert names(broken(level="medium"), broken(), broken(cause="host-stuck")) == ["node7"]
    assert names(broken(who=Who("rank", (0, 2)))) == ["node3", "node12"]
    assert names(broken(cause="link-cut", who=Who("link", (1,)))) == ["node7"]


def test_a_host_name_that_is_none_gets_into_no_command():
    for host in ("", "a b", "x\n-o all", "--help", "$(reboot)", "a;b", "n" * 300):
        assert names(broken(0), hosts=(host,)) == [], host


def test_slurm_knows_hosts_by_their_short_names():
    said = text(broken(0), broken(1), hosts=("n1.example.org", "n2.example.org"))
    assert "# SLURM: --exclude=n1,n2\n" in said
    assert said.endswith("\nn1.example.org\nn2.example.org\n")
    of_job = text(
        broken(0), broken(1), hosts=("n1.example.org", "n2.example.org"), nodelist=("n1", "n2")
    )
    assert of_job.endswith("\n# SLURM: --exclude=n1,n2\n# PBS: pbsnodes -o n1 n2\nn1\nn2\n")
    long = text(broken(0), hosts=("n1.example.org",), nodelist=("n1.example.org",))
    assert "# SLURM: --exclude=n1.example.org\n" in long


# Causes that are faults of a node or its devices. With all other causes (software, settings, links)
# a job may run there.
DRAINS = {
    "node-lost", "link-cut", "bad-memory", "own-errors-counted", "gpu-lost",
    "remap-failed", "recovery-needed", "uncorrected-ecc", "wrong-contribution", "wrong-arithmetic",
    "slow-rank", "slow-node", "slow-sender", "slow-receiver",
    "delayed-sender", "delayed-receiver", "delayed-rank", "delayed-node", "unreachable-node",
    "node-reaches-nobody", "node-cut-off", "file-system-hangs", "file-system-broken",
    "file-system-full",
}  # fmt: skip


def draining(package):
    """Yields the causes of rows that keep jobs from a node, and those of functions that do."""
    for file in package.rglob("*.py"):
        text = file.read_text()
        tree = ast.parse(text) if "drains_node" in text else ast.Module([], [])
        rows = [node for node in ast.walk(tree) if getattr(one_of(node), "id", "") == "Row"]
        yield from (row.args[0].value for row in rows if drains(row))
        for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
            if any(map(drains, ast.walk(function))) and function.name != "found":
                yield from causes_in(function)


def one_of(node):
    return node.func if isinstance(node, ast.Call) else None


def drains(node):
    """Returns whether a call has drains_node=, and not False."""
    keywords = node.keywords if isinstance(node, ast.Call) else ()
    return any(one.arg == "drains_node" and ast.unparse(one.value) != "False" for one in keywords)


def causes_in(tree):
    """Returns the texts that look like causes."""
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    return {s for s in texts if isinstance(s, str) and re.fullmatch("[a-z]+(-[a-z]+)+", s)}


def test_only_faults_of_a_node_or_its_devices_keep_jobs_from_it():
    told = set(draining(Path(oddrank.__file__).parent))
    assert told <= DRAINS
    assert len(told) > 12


def test_a_slow_end_keeps_jobs_from_its_node_and_a_slow_link_does_not():
    for kind in get_args(Kind):
        for delayed in (False, True):
            cause = pairs_findings._cause(Part(kind, (0,)), delayed)
            assert (cause in DRAINS) == (not cause.endswith("-link"))
