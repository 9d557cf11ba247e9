"""Each launcher's variables are used, and another launcher's leftovers are not."""

import json
import os

from launch import environments as made
from oddrank import launch
from texts import rows

TORCHRUN = made.TORCHRUN
# Environment -> (launcher, rank, world, local rank, local world, node, nodes).
PLACES = rows(__file__, "places")


def test_each_process_knows_its_place():
    for name, words, place in PLACES:
        me = launch.current(made.environ(words))
        found = (me.launcher, me.rank, me.world, me.local_rank, me.local_world, me.node, me.nodes)
        assert " ".join(map(str, found)) == place, name
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
