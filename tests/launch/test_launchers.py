"""Each launcher's variables are used, and another launcher's leftovers are not."""

import os

import pytest

from launch import environments as made
from oddrank import launch


def place(environ):
    me = launch.current(environ)
    return (me.launcher, me.rank, me.world, me.local_rank, me.local_world, me.node, me.nodes)


def test_a_process_that_nothing_launched_is_rank_0_of_1():
    me = launch.current({})
    assert place({}) == ("alone", 0, 1, 0, 1, 0, 1)
    assert me.host == os.uname().nodename
    assert me.master is None


def test_torchrun_says_all():
    me = launch.current(made.torchrun(5, 1, 1, local_world=4, nodes=2))
    assert (me.launcher, me.rank, me.world, me.local_rank) == ("torchrun", 5, 8, 1)
    assert (me.local_world, me.node, me.nodes) == (4, 1, 2)
    assert me.master == ("n1", 43091)
    assert me.job == "77"


def test_torchrun_on_nodes_of_different_size_is_no_contradiction():
    environ = made.torchrun(6, 1, 1, local_world=2, nodes=2) | {"WORLD_SIZE": "7"}
    assert place(environ) == ("torchrun", 6, 7, 1, 2, 1, 2)


def test_each_task_of_a_slurm_step_knows_its_place():
    assert [place(task) for task in made.STEP] == [
        ("slurm", 0, 3, 0, 2, 0, 2),
        ("slurm", 1, 3, 1, 2, 0, 2),
        ("slurm", 2, 3, 0, 1, 1, 2),
    ]


def test_a_step_smaller_than_its_job_counts_its_own_tasks():
    assert place(made.SMALL_STEP) == ("slurm", 1, 2, 1, 2, 0, 1)


def test_the_tasks_of_a_step_agree_on_a_master_without_being_told():
    masters = {launch.current(task).master for task in made.STEP}
    assert len(masters) == 1
    host, port = masters.pop()
    assert host == "n1"
    assert 20000 <= port < 30000


def test_master_addr_and_port_are_believed_before_the_node_list():
    environ = {**made.STEP[1], "MASTER_ADDR": "ib7", "MASTER_PORT": "1234"}
    assert launch.current(environ).master == ("ib7", 1234)


def test_sruns_own_pmi_changes_nothing():
    assert [place(task) for task in made.PMI2_STEP] == [place(task) for task in made.STEP]


@pytest.mark.parametrize("name", ["SBATCH", "SALLOC", "INTERACTIVE_STEP", "SBATCH_IN_STEP"])
def test_a_lone_process_in_an_allocation_is_no_rank_of_it(name):
    me = launch.current(getattr(made, name))
    assert (me.launcher, me.rank, me.world) == ("alone", 0, 1)


def test_a_batch_script_of_another_nodes_step_is_alone():
    leftover = {**made.SBATCH_IN_STEP, "SLURMD_NODENAME": "n9", "SLURM_NTASKS": "3"}
    assert launch.current(leftover).launcher == "alone"


def test_torchrun_in_a_step_has_its_own_numbers_and_srun_those_of_its_agent():
    assert made.TORCHRUN_IN_STEP["SLURM_PROCID"] != made.TORCHRUN_IN_STEP["RANK"]
    assert place(made.TORCHRUN_IN_STEP) == ("torchrun", 0, 8, 0, 4, 0, 2)


def test_mpirun_in_a_step_has_its_own_numbers_and_srun_those_of_its_daemon():
    assert place({**made.STEP[0], **made.OPEN_MPI}) == ("openmpi", 3, 4, 1, 2, 1, 2)


def test_hydra_in_a_step_has_its_own_numbers_and_srun_those_of_its_proxy():
    assert place({**made.STEP[0], **made.HYDRA}) == ("pmi", 2, 4, 0, 2, 1, 2)


def test_open_mpi_hydra_and_pals_without_slurm():
    assert place(made.OPEN_MPI) == ("openmpi", 3, 4, 1, 2, 1, 2)
    assert place(made.HYDRA) == ("pmi", 2, 4, 0, 2, 1, 2)
    assert place(made.PALS) == ("pmi", 13, 24, 1, 12, 1, 2)


def test_ranks_of_one_host_find_a_master_and_ranks_of_several_are_not_given_a_wrong_one():
    one_host = {**made.OPEN_MPI, "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1"}
    assert launch.current(one_host).master[0] == "127.0.0.1"
    assert launch.current(made.OPEN_MPI).master is None


def test_ranks_of_one_mpirun_agree_on_a_port_behind_a_wrapper_script_each(monkeypatch):
    one_host = {**made.OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "4", "PMIX_NAMESPACE": "18922864"}
    mine = launch.current(one_host)
    monkeypatch.setattr(os, "getppid", lambda: 1)
    assert launch.current(one_host).master == mine.master
    assert launch.current({**one_host, "PMIX_NAMESPACE": "18922865"}).master != mine.master


def test_ranks_started_by_hand_from_two_shells_agree_on_a_port():
    environ = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}
    assert launch.current(environ).master == ("localhost", 29500)


def test_plain_variables_are_a_launch_too():
    environ = {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
    assert place(environ) == ("env", 1, 4, 1, 2, 0, 2)


def test_plain_variables_with_a_master_on_this_host_put_all_ranks_here():
    environ = {"RANK": "3", "WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    assert place(environ) == ("env", 3, 4, 3, 4, 0, 1)


def test_plain_variables_with_a_master_elsewhere_and_no_local_rank_are_one_rank_a_host():
    environ = {"RANK": "3", "WORLD_SIZE": "4", "MASTER_ADDR": "n1", "MASTER_PORT": "29500"}
    assert place(environ) == ("env", 3, 4, 0, 1, 3, 4)


def test_a_world_size_that_a_batch_script_exports_for_later_makes_no_rank():
    exported = {"WORLD_SIZE": "3", "MASTER_ADDR": "n1", "MASTER_PORT": "29500"}
    assert launch.current({**made.SBATCH, **exported}).launcher == "alone"
    assert place({**made.STEP[2], **exported}) == place(made.STEP[2])


def test_a_wrapper_script_may_repeat_what_slurm_says():
    assert place({**made.STEP[1], "RANK": "1", "WORLD_SIZE": "3"}) == place(made.STEP[1])


def test_a_task_may_fork_ranks_of_its_own():
    forked = {"RANK": "21", "WORLD_SIZE": "24", "LOCAL_RANK": "5", "LOCAL_WORLD_SIZE": "8"}
    assert place({**made.STEP[2], **forked}) == ("env", 21, 24, 5, 8, 2, 3)


def test_ranks_started_by_hand_in_an_interactive_step_are_believed():
    shell = {**made.SMALL_STEP, "SLURM_STEP_NUM_TASKS": "1", "SLURM_NTASKS": "1"}
    shell |= {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_GTIDS": "0"}
    shell |= {"SLURM_STEP_TASKS_PER_NODE": "1"}
    assert launch.current(shell).launcher == "slurm"
    assert place({**shell, "RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}) == (
        ("env", 1, 2, 1, 2, 0, 1)
    )


def test_an_empty_variable_is_an_unset_one():
    assert launch.current({"RANK": "", "WORLD_SIZE": "", "SLURM_STEP_ID": ""}).launcher == "alone"
