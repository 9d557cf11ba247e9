"""Launchers that end, ranks that die before the root knows them, nodes that lose each other."""

import os
import signal
import socket
import sys
import time
from collections.abc import Callable

import pytest

from faults import only
from job import Live, Verdict, job
from launchers import LAUNCHERS
from netns import two_hosts
from patience import until
from processes import captured

pytestmark = [pytest.mark.needs("torch"), pytest.mark.timeout(240)]
DEADLINE = 150


def guards(live: Live) -> int:
    """Returns the number of living guards of a job."""
    return sum(process.name == "oddrank-guard" for process in live.mark.living())


def once_guarded(ranks: int, act: Callable[[Live], None], seconds: float = 0):
    """Acts `seconds` after each rank has a guard."""

    def when(live: Live) -> None:
        until(lambda: guards(live) == ranks)
        time.sleep(seconds)
        act(live)

    return when


def at_once(verdict: Verdict) -> bool:
    return verdict.seconds < DEADLINE / 2 and verdict.gone()


@pytest.mark.parametrize("seconds", [0, 1.5, 4])
@pytest.mark.parametrize("ranks", [1, 3])
def test_a_launcher_that_is_killed_is_told_at_once_and_no_rank(ranks, seconds):
    slow = f"slow:rank={ranks - 1},stage=device,seconds=60"
    act = once_guarded(ranks, lambda live: live.launchers[0].kill(), seconds)
    verdict = job(ranks, inject=slow, deadline=DEADLINE, command=only("device"), act=act)
    assert verdict.causes == {"launcher-gone"}, str(verdict)
    assert not any(finding["who"]["ranks"] for finding in verdict.report["findings"])
    assert "torchrun (pid " in verdict.output
    assert at_once(verdict), str(verdict)


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_rank_that_dies_before_it_has_a_guard_is_named(tmp_path, rank):
    # Python imports this as it starts.
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal\n"
        f"if os.environ.get('RANK') == '{rank}':\n"
        "    os.kill(os.getpid(), signal.SIGSTOP)\n"
    )
    # Once the others have theirs: torchrun would otherwise end those first.
    act = once_guarded(2, lambda live: os.kill(live.pid_of(rank), signal.SIGKILL))
    environ = {"PYTHONPATH": str(tmp_path)}
    verdict = job(
        3, deadline=DEADLINE, command=only("device"), environ=environ, act=act, fresh=True
    )
    if rank:
        assert verdict.names(rank=rank, stage="join"), str(verdict)
        assert verdict.causes == {"never-joined"}
    else:  # the guards of its host say so
        assert verdict.report is None
        (said,) = [line for line in verdict.output.splitlines() if "oddrank: rank 0 (" in line]
        assert "never joined: its launcher, torchrun (pid " in said
    assert at_once(verdict), str(verdict)


@pytest.mark.needs("netns")
@pytest.mark.parametrize(
    ("ranks", "rank", "number"), [(2, 1, signal.SIGSEGV), (4, 3, signal.SIGKILL)]
)
def test_a_rank_of_another_host_that_dies_while_it_imports_torch_is_named(ranks, rank, number):
    act = once_guarded(ranks, lambda live: os.kill(live.pid_of(rank), number))
    waits = f"slow:rank={rank},stage=join,seconds=100"
    with two_hosts() as hosts:
        verdict = job(
            ranks, 2, hosts=hosts, deadline=DEADLINE, command=only("device"), inject=waits, act=act
        )
    assert verdict.names(rank=rank, stage="join"), str(verdict)
    assert verdict.causes == {"dead"}
    assert number.name in verdict.report["findings"][0]["what"]
    assert at_once(verdict), str(verdict)


@pytest.mark.needs("netns")
def test_nodes_between_which_large_packets_vanish_lost_each_other_and_both_live():
    # The facts of a rank do not fit a small packet: they come once the firewall is up.
    slow = [f"slow:rank={rank},stage=environment,seconds=14" for rank in (2, 3)]
    with two_hosts() as hosts:
        verdict = job(
            4, 2, hosts=hosts, deadline=60, command=("selftest", "--quick"), after="join ",
            act=lambda _: hosts[0].firewall("iifname != lo meta length > 1000 drop"),
            inject=";".join(slow),
        )  # fmt: skip
    assert verdict.causes == {"lost-each-other"}, str(verdict)
    assert "is dead" not in verdict.output
    assert verdict.gone(), str(verdict)


@pytest.mark.needs("netns", "nft")
def test_a_firewall_before_rank_0s_port_is_named_and_its_direction():
    """torch's store is reached, the guard of rank 0 is not."""

    def behind_a_firewall(order):
        allowed = order.master[1]
        hosts[0].firewall(f"iifname != lo tcp dport != {allowed} ct state new drop")
        return LAUNCHERS["env"](order)

    with two_hosts() as hosts:
        verdict = job(
            4, 2, hosts=hosts, deadline=45, command=only("device"), launcher=behind_a_firewall
        )
    assert verdict.causes == {"unreachable-root"}, str(verdict)
    assert verdict.names(rank=(2, 3), stage="join")
    (finding,) = verdict.report["findings"]
    assert "node1 cannot connect to node0, no answer from " in finding["what"]
    assert verdict.gone(), str(verdict)


def with_variable(rank: int, name: str, value: str):
    """Starts ranks of which one has another environment."""

    def start(order):
        plan = LAUNCHERS["env"](order)
        plan[rank][2][name] = value
        return plan

    return start


def test_a_rank_that_counts_another_world_ends_the_job_at_once():
    verdict = job(3, deadline=DEADLINE, launcher=with_variable(2, "WORLD_SIZE", "4"))
    assert verdict.causes == {"other-world"}, str(verdict)
    assert "WORLD_SIZE" in verdict.output
    assert at_once(verdict), str(verdict)


def test_a_port_that_another_program_has_ends_rank_0_before_its_deadline():
    with socket.create_server(("127.0.0.1", 0)) as another:
        port = another.getsockname()[1]
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
        command = [sys.executable, "-m", "oddrank", *only("device")]
        done = captured(command, RANK="0", LOCAL_RANK="0", LOCAL_WORLD_SIZE="2", **place)
    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines()[-1] == (
        f"oddrank: MASTER_PORT {port} is taken by another program: ss -ltnp | grep {port}"
        f" (on {socket.gethostname()})"
    )


@pytest.mark.parametrize("rank", [0, 1])
def test_an_interface_that_a_host_does_not_have_is_told_at_once(rank):
    start = with_variable(rank, "GLOO_SOCKET_IFNAME", "lo,nowhere0")
    verdict = job(2, deadline=DEADLINE, command=only("connect"), launcher=start)
    first = verdict.report["findings"][0]
    assert (first["cause"], first["who"]["ranks"]) == ("dead", [rank]), str(verdict)
    assert "this host has no interface nowhere0" in verdict.report["summary"]
    assert at_once(verdict), str(verdict)
