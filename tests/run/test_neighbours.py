"""Jobs that share a machine or a folder, and nodes that leave: each job is judged by itself."""

import os
import signal
import sys
from functools import partial

import pytest

import forked
from launchers import Order
from patience import until
from processes import held_port
from run.watched_job import LONGEST, named, watched_job
from texts import texts

pytestmark = [pytest.mark.needs("torch"), pytest.mark.job, pytest.mark.timeout(600)]

OF_ANOTHER_USER = texts(__file__)["of another user"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
@pytest.mark.parametrize("mode", [0o700, 0o755, 0o1777])
def test_a_job_in_the_folder_of_another_users_job_runs_and_is_not_shown_to_him(tmp_path, mode):
    shared = tmp_path / "records"
    mine = {"ODDRANK_DIR": str(shared)}
    run = partial(forked.run, env={**os.environ, **mine}, text=True)
    assert run([sys.executable, "-c", "import oddrank; oddrank.arm()"]).returncode == 0
    shared.chmod(mode)
    done = run([sys.executable, "-c", OF_ANOTHER_USER])
    assert done.returncode == 0, done.stderr
    assert not done.stdout.startswith(str(shared))
    assert f"cannot use ODDRANK_DIR={shared}" in done.stderr
    shared.chmod(0o700)
    where = run([sys.executable, "-m", "oddrank", "trace", "where"])
    assert where.stdout.count("job ") == 1, where.stdout


def test_of_two_jobs_of_one_user_on_a_host_only_the_one_that_hangs_is_named(tmp_path):
    shared = {"ODDRANK_DIR": str(tmp_path)}
    with (
        watched_job("event", rank=1, ranks=2, environ=shared) as hangs,
        watched_job("none", rank=1, ranks=2, environ=shared) as healthy,
    ):
        assert named(hangs.waits_for("stall")) == ([1], "host-stuck")
        healthy.comes_to_its_fault()
        where = forked.run(
            [sys.executable, "-m", "oddrank", "trace", "where"],
            env={**os.environ, **shared}, text=True,
        )  # fmt: skip
        assert where.stdout.count(": 2 of 2 ranks, 2 alive") == 1, where.stdout + where.stderr
        assert where.stderr.count("also here: ") == 1, where.stderr
        assert healthy.said == []
        assert healthy.history == []


def two_elastic_agents(port: int, order: Order):
    for node, hosts_the_store in enumerate(("true", "false")):
        # An agent that gets no core for some seconds is neither lost nor left out: if the other one
        # began alone, gloo's ranks would not find each other in its store at the second start.
        options = "keep_alive_interval=1,keep_alive_max_attempt=8,last_call_timeout=15"
        yield (
            node,
            [
                sys.executable, "-m", "torch.distributed.run", "--nnodes", "1:2",
                "--nproc-per-node", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint",
                f"127.0.0.1:{port}", "--rdzv-id", "e", "--max-restarts", "3", "--rdzv-conf",
                f"{options},join_timeout=240,is_host={hosts_the_store}", *order.tool,
            ],
            # torch 2.13 keeps one store for all starts: a rank may read where gloo's ranks of the
            # start before listened, and both then wait for the other one to connect.
            {**order.environ, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
        )  # fmt: skip


def test_an_elastic_restart_without_a_lost_node_is_judged_by_those_that_are_left():
    with (
        held_port() as port,
        watched_job("none", rank=1, launcher=partial(two_elastic_agents, port)) as job,
    ):
        job.comes_to_its_fault()
        lost = {job.launchers[1].pid}
        for one in job.mark.living() * 3:  # whose parent may come later in the list
            if one.parent in lost:
                lost.add(one.pid)
        for pid in lost:
            os.kill(pid, signal.SIGKILL)
        (job.folder / "fault").unlink()
        job.comes_to_its_fault()  # the ranks that are left train again
        job.signal(1, signal.SIGSTOP)
        until(lambda: (now := job.report) and now["data"]["run"]["restart"] > 0, normal=LONGEST)
        report = job.waits_for("stall")
        assert named(report) == ([1], "host-stopped")
        assert report["world"]["size"] == 2
        assert sorted(report["data"]["heard"]) == [0, 1]
