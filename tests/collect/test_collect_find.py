"""`oddrank collect` finds the job: by records, or by the variables of processes."""

import os
import time

import pytest

from collect.collecting import process
from oddrank.collect import find
from oddrank.collect.children import Stop
from oddrank.collect.find import _chosen, _ranks
from oddrank.collect.sources import Rank, Target
from oddrank.errors import OddrankError

NONE = Target("", "node1")
FORKS = "import os, sys\nos.fork()\nprint('ready', flush=True)\nsys.stdin.readline()\n"


def seen(pid, number, job="a", *, world=4, parent=1, started=100):
    return {"pid": pid, "rank": number, "local_rank": number, "world": world, "job": job,
            "parent": parent, "started": started, "uid": 0, "environ": {}}  # fmt: skip


def recorded(job="r", *, alive=True, started=50):
    ranks = (Rank(0, None, 1, 4711, started, 0, alive),)
    return Target(job, "node1", ("/r/rank0-4711-50.trace",), ranks)


def pids(ranks):
    return {rank.rank: rank.pid for rank in ranks}


def chosen(own, *processes, names=()):
    """Returns the job that is collected, its ranks, how many records it has, and what is said."""
    fresh = {one["pid"]: one for one in processes}
    target, lines = _chosen(own, fresh, names, "no such job")
    return target.job, pids(target.ranks), len(target.records), lines


def test_children_with_the_variables_of_their_rank_are_no_ranks():
    found = [seen(11, 0), seen(12, 1), seen(13, 0, parent=11), seen(14, 0, parent=13, started=90)]
    assert pids(_ranks(found)) == {0: 11, 1: 12}


def test_the_agent_of_a_launcher_in_a_slurm_step_is_no_rank():
    found = [seen(10, 0, world=2), *(seen(11 + i, i, world=16, parent=10) for i in range(8))]
    assert pids(_ranks(found)) == {i: 11 + i for i in range(8)}


def test_the_newest_job_counts_but_one_that_lives_and_recorded_itself_comes_first(golden):
    a_and_b = [seen(11, 0), seen(12, 0, "b", started=200)]
    ended, newer = recorded(alive=False), recorded(alive=False, started=300)
    slurm = [seen(11, 0, "slurm-4711.0")]
    found = {
        "two jobs without records": chosen(NONE, *a_and_b),
        "and one that has ended before": chosen(ended, *a_and_b),
        "and one that lives and has records": chosen(recorded(), *a_and_b),
        "and one that ended after they began": chosen(newer, *a_and_b),
        "a rank without a record, of the job that has": chosen(recorded("a"), seen(11, 3)),
        "a job by its name, without any record": chosen(NONE, *slurm, names=["slurm-4711"]),
        "no job": chosen(NONE),
    }
    assert [one[:3] for one in found.values()] == [
        ("b", {0: 12}, 0), ("b", {0: 12}, 0), ("r", {0: 4711}, 1), ("r", {0: 4711}, 1),
        ("a", {0: 4711, 3: 11}, 1), ("slurm-4711.0", {0: 11}, 0), ("no-job", {}, 0),
    ]  # fmt: skip
    golden("\n".join(line for name, one in found.items() for line in (f"{name}:", *one[3])))
    with pytest.raises(OddrankError, match="no such job"):
        chosen(NONE, *slurm, names=["slurm-12"])


def test_a_real_rank_without_oddrank_is_found_by_its_variables(tmp_path, monkeypatch):
    monkeypatch.setenv("ODDRANK_DIR", str(tmp_path))
    name = f"oddrank-test-{os.getpid()}"
    more = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "TORCHELASTIC_RUN_ID": name,
            "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "1", "GROUP_WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "NCCL_RAS_ADDR": "here:1",
            "API_TOKEN": "secret"}  # fmt: skip
    with process(FORKS, more, tmp_path) as running:
        found = find.find([name], "node1", time.monotonic() + 600, Stop())
    (one,) = found.target.ranks
    assert (one.rank, one.local_rank, one.world, one.pid) == (3, 1, 4, running.pid)
    assert one.environ["NCCL_RAS_ADDR"] == "here:1"
    assert "API_TOKEN" not in one.environ
