"""`oddrank collect` finds the job: by records, or by the variables of processes."""

import os
import time

import pytest

from oddrank.errors import OddrankError
from oddrank.run.collect import find
from oddrank.run.collect.children import Stop
from oddrank.run.collect.find import _chosen, _jobs, _Recorded
from oddrank.run.collect.sources import Rank
from run.collecting import process

FORKS = "import os, sys\nos.fork()\nprint('ready', flush=True)\nsys.stdin.readline()\n"


def seen(pid, number, job="a", *, world=4, parent=1, started=100):
    return {"pid": pid, "rank": number, "local_rank": number, "world": world, "job": job,
            "parent": parent, "started": started, "uid": 0, "environ": {}}  # fmt: skip


def recorded(job="r", *, alive=True, started=50):
    ranks = (Rank(0, None, 1, 4711, started, 0, alive),)
    return _Recorded(("/r/rank0-4711-50.trace",), job, ranks)


def pids(ranks):
    return {rank.rank: rank.pid for rank in ranks}


def test_children_with_the_variables_of_their_rank_are_no_ranks():
    found = [seen(11, 0), seen(12, 1), seen(13, 0, parent=11), seen(14, 0, parent=13, started=90)]
    assert pids(_jobs(found)["a"]) == {0: 11, 1: 12}


def test_the_agent_of_a_launcher_in_a_slurm_step_is_no_rank():
    found = [seen(10, 0, world=2), *(seen(11 + i, i, world=16, parent=10) for i in range(8))]
    assert pids(_jobs(found)["a"]) == {i: 11 + i for i in range(8)}


def test_the_newest_job_counts_but_one_that_lives_and_recorded_itself_comes_first():
    fresh = {one["pid"]: one for one in [seen(11, 0), seen(12, 0, "b", started=200)]}
    target, lines = _chosen(_Recorded(), fresh, (), "node1", "no record")
    assert (target.job, pids(target.ranks)) == ("b", {0: 12})
    assert lines == ["also here: a: name one to collect it"]
    target, lines = _chosen(recorded(alive=False), fresh, (), "node1", "")
    assert (target.job, target.records) == ("b", ())
    assert "also here, but ended before: r: name it to collect it" in lines
    for own in (recorded(alive=True), recorded(alive=False, started=300)):
        target, lines = _chosen(own, fresh, (), "node1", "")
        assert (target.job, len(target.records)) == ("r", 1)
        assert lines == ["also here: b: name it to collect it"]


def test_ranks_of_the_job_without_a_record_belong_to_it():
    target, _ = _chosen(recorded("a"), {11: seen(11, 3)}, (), "node1", "")
    assert pids(target.ranks) == {0: 4711, 3: 11}


def test_a_job_is_found_by_its_name_without_any_record():
    fresh = {11: seen(11, 0, "slurm-4711.0")}
    target, _ = _chosen(_Recorded(), fresh, ["slurm-4711"], "node1", "no such job")
    assert target.job == "slurm-4711.0"
    with pytest.raises(OddrankError, match="no such job"):
        _chosen(_Recorded(), fresh, ["slurm-12"], "node1", "no such job")


def test_without_any_job_the_node_itself_is_collected():
    target, lines = _chosen(_Recorded(), {}, (), "node1", "no record")
    assert (target.ranks, target.records) == ((), ())
    assert "collected is what the node itself says" in lines[0]


def test_a_real_rank_without_oddrank_is_found_by_its_variables(tmp_path, monkeypatch):
    monkeypatch.setenv("ODDRANK_DIR", str(tmp_path))
    name = f"oddrank-test-{os.getpid()}"
    more = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "TORCHELASTIC_RUN_ID": name,
            "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "1", "GROUP_WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "NCCL_DEBUG": "INFO",
            "API_TOKEN": "secret"}  # fmt: skip
    with process(FORKS, more, tmp_path) as running:
        found = find.find([name], "node1", time.monotonic() + 600, Stop())
    (one,) = found.target.ranks
    assert (one.rank, one.local_rank, one.world, one.pid) == (3, 1, 4, running.pid)
    assert one.environ["NCCL_DEBUG"] == "INFO"
    assert "API_TOKEN" not in one.environ
