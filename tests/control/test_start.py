"""The start of a session: by a given address, with a dead resolver, and with bad input."""

import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import pytest

from bench.told import refusal
from oddrank import _native, machine
from oddrank.control import runner
from oddrank.control.address import listen_on
from oddrank.control.rendezvous import Rendezvous
from oddrank.control.session import start
from oddrank.control.stages import RankState, RunState, nodes_of
from oddrank.errors import OddrankError
from oddrank.launch import Launch, current
from oddrank.machine import node_number
from patience import PATIENCE, until
from texts import texts


def test_ranks_find_a_root_that_starts_later_than_they_do(job, port):
    ranks = job(2, never=(0,), environ={"ODDRANK_CONTROL_ADDR": f"127.0.0.1:{port}#a-secret-word"})
    ranks.guard(1)
    assert ranks.workers[1].poll() is None
    ranks.start(0)
    assert ranks.codes() == {0: 0, 1: 0}


def test_a_rank_that_was_reaped_before_its_guard_ran_is_dead_and_not_missing(job, tmp_path):
    environ = {
        "TEST_RENDEZVOUS_FILE": str(tmp_path / "rendezvous" / "root"),
        "TEST_LATE_GUARD": "1",
    }
    ranks = job(2, never=(0,), kill=1, at="join", environ=environ)
    assert ranks.workers[1].wait(PATIENCE.limit) == -signal.SIGKILL
    until(lambda: "oddrank-guard" in ranks.processes().values())
    ranks.start(0)
    assert ranks.codes()[0] == 1
    died = ranks.verdict()["states"][1]
    assert (died["contact"], died["state"]) == ("ok", "dead")


def test_a_root_that_welcomes_just_after_the_join_deadline_is_followed(job):
    core = _native.core()
    listener, port = listen_on(0)  # accepts, answers nothing
    environ = {"TEST_JOIN": "10", "ODDRANK_CONTROL_ADDR": f"127.0.0.1:{port}#a-secret"}
    ranks = job(2, never=(0,), deadline=90, environ=environ)
    guard, worker = ranks.guard(1), ranks.workers[1]
    ranks.signal(guard, signal.SIGSTOP)
    until(lambda: time.monotonic() > ranks.guards_deadline(1) - 90 + 10)
    hub = core.Hub(listener, 2, "a-secret", "roothost", 90.0, 0, 0)
    ranks.signal(guard, signal.SIGCONT)
    until(lambda: hub.snapshot()[1]["contact"] == "ok")
    with suppress(subprocess.TimeoutExpired):
        worker.wait(2)  # longer than a guard that gives up waits
    hub.end(7, 5.0)
    assert ranks.codes() == {1: 7}


def output_of(program: str, *arguments: str) -> str:
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.check_output(command, text=True, timeout=PATIENCE.limit)


def test_a_result_that_is_too_long_is_not_published(job):
    ranks = job(1, environ={"TEST_RESULT": str(64 << 20)})
    assert ranks.codes() == {0: 1}
    state = ranks.verdict()["states"][0]
    assert not state["published"]
    assert "a message of 67108873 bytes is longer than the 67108864 bytes" in state["failed"]


@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT"])
def test_children_of_a_rank_can_be_ended(number):
    assert output_of(texts(__file__)["children"], number) == "all have ended\n"


def test_an_address_that_is_none_is_one_clear_line(monkeypatch, golden):
    said = []
    for address in (
        "10.0.0.1", "node1:80#x", "10.0.0.1:80", "10.0.0.1:0#x", "10.0.0.1#x", "10.0.0.1:99999#x",
        ":5#x", "10.0.0.1:5 #x", "10.0.0.1:5#", "1.2.3.4,:5#x",
    ):  # fmt: skip
        monkeypatch.setenv("ODDRANK_CONTROL_ADDR", address)
        said.append(refusal(start, current({}), deadline=1, judge=lambda root: 0))
    golden("\n".join(said))


@pytest.mark.parametrize("module", ["1", "os"])
def test_a_module_without_faults_is_one_clear_line(monkeypatch, module):
    monkeypatch.setenv("ODDRANK_TESTING", module)
    said = refusal(start, current({}), deadline=1, judge=lambda root: 0)
    assert said.startswith(f"ODDRANK_TESTING={module}: ")


def test_a_rank_whose_launcher_died_says_so(job):
    ranks = job(2, never=(1,), sleep=0, at="first", deadline=20, stage=8)
    ranks.start(1, prefix=("sh", "-c", '"$@" & wait', "sh"))
    ranks.in_stage("first", 1)
    ranks.workers[1].kill()  # the shell
    states = ranks.verdict()["states"]
    assert [states[rank]["orphaned"] for rank in (0, 1)] == [False, True]
    ranks.codes()


def test_two_hosts_with_one_name_are_two_nodes_unless_the_launcher_numbers_them(monkeypatch):
    here = Launch("env", 0, 0, 4, 2, 0, 2, "localhost", None, "job", node_is_known=False)
    numbers = []
    for boot in ("a", "b"):
        monkeypatch.setattr(machine, "small_file", lambda _, boot=boot: boot)
        numbers += [node_number(here)] * 2
    states = {
        rank: RankState(rank, "localhost", number, rank % 2, contact="ok")
        for rank, number in enumerate(numbers)
    }
    assert nodes_of(RunState(4, states)) == [(0, 1), (2, 3)]
    assert node_number(replace(here, node=1, node_is_known=True)) == 1


@pytest.mark.needs("netns")
def test_a_resolver_that_answers_nothing_is_told(job, tmp_path):
    # A network namespace in which packets to the name server vanish.
    program = ["sh", "-c", texts(__file__)["blackhole"], "sh", str(tmp_path / "resolv")]
    unshare = ["unshare", "--net", "--mount", *program]
    ranks = job(1, inject="slow:rank=0,stage=second,seconds=1.5", prefix_of={0: unshare})
    assert ranks.codes() == {0: 0}
    assert ranks.verdict()["states"][0]["resolver_slow"]


@pytest.mark.needs("torch")
@pytest.mark.timeout(300)  # imports torch
def test_rank_0_is_published_before_anything_else_goes_through_its_store(monkeypatch, port):
    import torch.distributed as dist

    for name in ("ODDRANK_CONTROL_ADDR", "TORCHELASTIC_RESTART_COUNT"):
        monkeypatch.delenv(name, raising=False)
    place = Launch("env", 0, 0, 2, 2, 0, 1, "h", ("127.0.0.1", port), "job")
    session = SimpleNamespace(address="127.0.0.1:80#word")
    own = Rendezvous(place, session, seconds=PATIENCE.limit).store()
    limit = timedelta(seconds=PATIENCE.limit)
    peer = dist.TCPStore(*place.master, is_master=False, timeout=limit)
    waiting = threading.Thread(target=own.get, args=("a rank that comes by another way",))
    waiting.start()
    assert peer.get("oddrank/root/0") == b"127.0.0.1:80#word"
    peer.set("a rank that comes by another way", "came")
    waiting.join(PATIENCE.limit)
    assert not waiting.is_alive()


@pytest.mark.needs("torch")
@pytest.mark.timeout(300)
def test_no_collection_goes_through_what_torchs_import_has_left():
    code = """
import gc
from oddrank.control import rendezvous
rendezvous._import_torch()
print(gc.isenabled(), gc.get_freeze_count() > 10 * len(gc.get_objects()))
"""
    assert output_of(code) == "True True\n"


def test_one_rank_a_node_says_that_torch_is_missing(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for local_rank, error in ((0, OddrankError), (1, SystemExit)):
        here = replace(current({}), local_rank=local_rank)
        with pytest.raises(error) as ended:
            runner.run([], here, deadline=60, conclude=lambda outcome: 0, no_verdict=1)
        assert getattr(ended.value, "code", 2) == 2
