"""Commands of many ranks under srun, without torchrun, on a real SLURM of two nodes."""

import os
from contextlib import suppress
from pathlib import Path

import pytest

from job import Verdict, job

# The first test that needs SLURM starts it, within its timeout.
pytestmark = [pytest.mark.needs("torch", "slurm", "netns"), pytest.mark.timeout(300)]
BENCH = ("bench", "run", "--sizes", "8:64K:x8", "--budget", "2", "--precision", "20%")
# The end of one rank ends the step: all its processes are killed, the judge too.
AT_ONCE = "--kill-on-bad-exit=1"


def hosts_named(verdict: Verdict) -> list[str]:
    assert verdict.report is not None
    return [finding["who"]["host"] for finding in verdict.report["findings"]]


def test_a_healthy_selftest_says_so_once_and_keeps_its_token_to_itself(slurm):
    seen: list[str] = []
    verdict = job(
        4,
        nodes=2,
        launcher=slurm.srun(),
        deadline=200,
        command=("selftest", "--quick"),
        after="environment",
        act=lambda _: seen.extend(tokens_and_who_shows_them()),
    )
    assert verdict.healthy(), str(verdict)
    assert verdict.gone()
    assert verdict.codes == (0,)
    assert verdict.output.count("selftest: healthy") == 1
    world = verdict.report["world"]
    assert (world["size"], world["nodes"], world["launcher"]) == (4, 2, "slurm")
    assert len(seen) == 1, f"the token stands in {seen[1:]}"


def tokens_and_who_shows_them() -> list[str]:
    """Returns the token of these ranks' guards, then every place where other users can see it."""
    files = sorted(Path("/dev/shm").glob("oddrank-*/slurm-*/root-*-0"), key=mtime)
    token = files[-1].read_text().partition("#")[2]
    assert token
    shown = []
    for process in filter(str.isdigit, os.listdir("/proc")):
        for file in (Path("/proc", process, name) for name in ("cmdline", "environ")):
            with suppress(OSError):  # the process has ended
                if token.encode() in file.read_bytes():
                    shown.append(str(file))
    return [token, *shown]


def mtime(file: Path) -> float:
    return file.stat().st_mtime


def test_a_healthy_sweep_measures_all_ranks_of_both_nodes(slurm):
    verdict = job(4, nodes=2, launcher=slurm.srun(AT_ONCE), command=BENCH, deadline=100)
    assert verdict.healthy(), str(verdict)
    assert verdict.gone()
    assert verdict.codes == (0,)
    rows = verdict.report["data"]["rows"]
    assert {row["n"] for row in rows} == {4}
    assert {8, 64 << 10} <= {row["bytes"] for row in rows}
    assert {row["check"] for row in rows} == {"ok"}


@pytest.mark.parametrize(
    ("rank", "stage", "options"), [(3, "collectives", (AT_ONCE,)), (0, "environment", ())]
)
def test_a_rank_that_is_killed_is_named_with_its_node_before_srun_ends_the_others(
    slurm, rank, stage, options
):
    verdict = job(
        4,
        nodes=2,
        launcher=slurm.srun(*options),
        kill=rank,
        at=stage,
        command=("selftest", "--quick", "--only", "collectives"),
        deadline=100,
    )
    assert verdict.names(rank=rank, stage=stage), str(verdict)
    assert verdict.causes == {"killed"}
    assert hosts_named(verdict) == [f"node{rank // 2}"]
    assert verdict.output.count("selftest: odd") == 1
    assert verdict.codes != (0,)
    assert verdict.gone(), str(verdict)


@pytest.mark.parametrize("rank", [0, 1])
def test_the_only_rank_of_a_node_is_named_though_slurm_clears_its_node(slurm, rank):
    verdict = job(
        2,
        nodes=2,
        launcher=slurm.srun(AT_ONCE),
        command=BENCH,
        kill=rank,
        at="devices",
        deadline=100,
    )
    assert verdict.names(rank=rank, stage="devices"), str(verdict)
    assert verdict.causes == {"killed"}
    assert hosts_named(verdict) == [f"node{rank}"]
    assert verdict.gone(), str(verdict)


def test_a_job_that_is_cancelled_says_so(slurm):
    verdict = job(
        2,
        nodes=2,
        launcher=slurm.srun(),
        sleep=1,
        at="environment",
        command=("selftest", "--quick", "--only", "device"),
        deadline=100,
        after=f"{'join':<11}  2/2",
        act=lambda _: slurm.call("scancel", "--user", "root"),
    )
    assert verdict.report is not None, str(verdict)
    assert verdict.report["verdict"] == "incomplete"
    assert verdict.output.count("selftest: incomplete") == 1
    assert verdict.gone(), str(verdict)
