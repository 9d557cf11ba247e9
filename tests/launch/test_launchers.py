"""Each launcher's variables are used, and another launcher's leftovers are not."""

import json
import os

from launch import environments as made
from oddrank import launch

TORCHRUN = made.torchrun(5, 1, 1, local_world=4, nodes=2)
# A batch script exports these for the ranks that it will start.
FOR_LATER = {"WORLD_SIZE": "3", "MASTER_ADDR": "n1", "MASTER_PORT": "29500"}
RANK_3_OF_4 = {"RANK": "3", "WORLD_SIZE": "4", "MASTER_PORT": "29500"}
ALONE = ("alone", 0, 1, 0, 1, 0, 1)
OF_STEP = [("slurm", 0, 3, 0, 2, 0, 2), ("slurm", 1, 3, 1, 2, 0, 2), ("slurm", 2, 3, 0, 1, 1, 2)]
# Environment -> (launcher, rank, world, local rank, local world, node, nodes).
PLACES = {
    "nothing launched it": ({}, ALONE),
    "all is empty": ({"RANK": "", "WORLD_SIZE": "", "SLURM_STEP_ID": ""}, ALONE),
    "torchrun": (TORCHRUN, ("torchrun", 5, 8, 1, 4, 1, 2)),
    "torchrun on nodes of different size": (
        made.torchrun(6, 1, 1, local_world=2, nodes=2) | {"WORLD_SIZE": "7"},
        ("torchrun", 6, 7, 1, 2, 1, 2),
    ),
    # SLURM's numbers are then those of torchrun's agent, mpirun's daemon, Hydra's proxy.
    "torchrun in a step": (made.TORCHRUN_IN_STEP, ("torchrun", 0, 8, 0, 4, 0, 2)),
    "mpirun in a step": ({**made.STEP[0], **made.OPEN_MPI}, ("openmpi", 3, 4, 1, 2, 1, 2)),
    "Hydra in a step": ({**made.STEP[0], **made.HYDRA}, ("pmi", 2, 4, 0, 2, 1, 2)),
    "mpirun": (made.OPEN_MPI, ("openmpi", 3, 4, 1, 2, 1, 2)),
    "Hydra": (made.HYDRA, ("pmi", 2, 4, 0, 2, 1, 2)),
    "PALS": (made.PALS, ("pmi", 13, 24, 1, 12, 1, 2)),
    **{f"task {task} of a step": (made.STEP[task], place) for task, place in enumerate(OF_STEP)},
    **{
        f"task {task} with SLURM's own PMI": (made.PMI2_STEP[task], place)
        for task, place in enumerate(OF_STEP)
    },
    "step smaller than its job": (made.SMALL_STEP, ("slurm", 1, 2, 1, 2, 0, 1)),
    "task that has a variable for later": ({**made.STEP[2], **FOR_LATER}, OF_STEP[2]),
    "wrapper that repeats SLURM's": (
        {**made.STEP[1], "RANK": "1", "WORLD_SIZE": "3"}, OF_STEP[1],
    ),
    "task that forks ranks": (
        {**made.STEP[2], "RANK": "21", "WORLD_SIZE": "24", "LOCAL_RANK": "5",
         "LOCAL_WORLD_SIZE": "8"},
        ("env", 21, 24, 5, 8, 2, 3),
    ),
    # One process in an allocation is no rank of it.
    "sbatch": (made.SBATCH, ALONE),
    "sbatch that has a variable for later": ({**made.SBATCH, **FOR_LATER}, ALONE),
    "salloc": (made.SALLOC, ALONE),
    "salloc's interactive step": (made.INTERACTIVE_STEP, ALONE),
    "first of SLURM's own steps": ({**made.SMALL_STEP, "SLURM_STEP_ID": "4294967280"}, ALONE),
    "sbatch typed in a step": (made.SBATCH_IN_STEP, ALONE),
    "sbatch typed in another node's step": (
        {**made.SBATCH_IN_STEP, "SLURMD_NODENAME": "n9", "SLURM_NTASKS": "3"}, ALONE,
    ),
    "shell in a step": (made.SHELL_STEP, ("slurm", 0, 1, 0, 1, 0, 1)),
    "rank typed into such a shell": (
        {**made.SHELL_STEP, "RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"},
        ("env", 1, 2, 1, 2, 0, 1),
    ),
    "variables by hand": (
        {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"},
        ("env", 1, 4, 1, 2, 0, 2),
    ),
    "node by hand, and not how many": (
        {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "0", "NODE_RANK": "3"},
        ("env", 5, 8, 0, 8, 3, 4),
    ),
    "master on this host: all ranks are here": (
        {**RANK_3_OF_4, "MASTER_ADDR": "127.0.0.1"}, ("env", 3, 4, 3, 4, 0, 1),
    ),
    "master elsewhere, no local rank: one rank a host": (
        {**RANK_3_OF_4, "MASTER_ADDR": "n1"}, ("env", 3, 4, 0, 1, 3, 4),
    ),
}  # fmt: skip


def test_each_process_knows_its_place():
    for name, (environ, place) in PLACES.items():
        me = launch.current(environ)
        found = (me.launcher, me.rank, me.world, me.local_rank, me.local_world, me.node, me.nodes)
        assert found == place, name
        assert me.host == os.uname().nodename
        assert bool(me.note) == (me.launcher == "alone"), name


ONE_HOST = {**made.OPEN_MPI, "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1"}


def test_the_master_is_believed_or_derived_so_that_all_ranks_agree_on_it_or_not_given():
    for environ, master in (
        ({}, None),
        (TORCHRUN, ("n1", 43091)),
        ({**made.STEP[1], "MASTER_ADDR": "ib7", "MASTER_PORT": "1234"}, ("ib7", 1234)),
        ({"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}, ("localhost", 29500)),
        (made.OPEN_MPI, None),  # of several hosts
    ):
        assert launch.current(environ).master == master
    assert launch.current(ONE_HOST).master[0] == "127.0.0.1"
    ((host, port),) = {launch.current(task).master for task in made.STEP}
    assert host == "n1"
    assert 20000 <= port < 30000


def test_ranks_of_one_mpirun_agree_on_a_port_behind_a_wrapper_script_each(monkeypatch):
    one_host = {**made.OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "4", "PMIX_NAMESPACE": "18922864"}
    mine = launch.current(one_host)
    monkeypatch.setattr(os, "getppid", lambda: 1)
    assert launch.current(one_host).master == mine.master
    assert launch.current({**one_host, "PMIX_NAMESPACE": "18922865"}).master != mine.master


def test_only_open_mpis_ranks_may_take_its_terminal_for_their_own():
    assert launch.fakes_terminals(made.OPEN_MPI)
    assert not launch.fakes_terminals(TORCHRUN)
    assert not launch.fakes_terminals({})


def test_torchrun_is_told_what_to_show_last_and_nobody_else_is(tmp_path):
    file = tmp_path / "error.json"
    launch.tell_launcher("rank 2 is odd", {"TORCHELASTIC_ERROR_FILE": str(file)})
    assert not file.exists()
    launch.tell_launcher("rank 2 is odd", {**TORCHRUN, "TORCHELASTIC_ERROR_FILE": str(file)})
    told = json.loads(file.read_text())["message"]
    assert told["message"] == "rank 2 is odd"
    assert int(told["extraInfo"]["timestamp"]) > 0
