"""Commands of many ranks under real launchers: MPI's, srun on two nodes, torchrun on two hosts.

MPI's launchers end all ranks once one has failed; so does srun with AT_ONCE, and the judge too.
tests/selftest has the self-test's faults under torchrun.
"""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from job import Verdict, job
from netns import two_hosts

# The first test that needs SLURM starts it, within its timeout.
pytestmark = [pytest.mark.needs("torch"), pytest.mark.timeout(600)]
BENCH = ("bench", "run", "--sizes", "8:64K:x8", "--budget", "2", "--precision", "20%")
# Beside other tests a rank may really be slow.
HEALTHY = ("selftest", "--quick", "--skip", "speed")
ONE_STAGE = ("selftest", "--quick", "--only", "device")
COLLECTIVES = ("selftest", "--quick", "--only", "collectives")
AT_ONCE = "--kill-on-bad-exit=1"

MPIRUN = pytest.param("mpirun", marks=pytest.mark.needs("mpi"), id="mpirun")
HYDRA = pytest.param("hydra", marks=pytest.mark.needs("hydra"), id="hydra")
# The marks of tests with the fixture slurm.
_SLURM = [pytest.mark.needs("slurm", "netns"), pytest.mark.xdist_group("slurm")]
SRUN = pytest.param(f"srun {AT_ONCE}", marks=_SLURM, id="srun")
KIND_SRUN = pytest.param("srun", marks=_SLURM, id="srun that ends nobody")
TORCHRUN = pytest.param("torchrun", marks=pytest.mark.needs("netns"), id="torchrun")


@pytest.fixture
def under(request: pytest.FixtureRequest) -> Iterator[Callable[..., Verdict]]:
    """Yields job() under a launcher; MPI's have one host, others two nodes."""
    name, *options = request.param.split()
    if name == "srun":
        yield partial(job, nodes=2, launcher=request.getfixturevalue("slurm").srun(*options))
    elif name == "torchrun":
        with two_hosts() as hosts:
            yield partial(job, nodes=2, hosts=hosts)
    else:
        yield partial(job, launcher=name)


def under_each(names: str, *rows: tuple[Any, ...]) -> pytest.MarkDecorator:
    """Runs a test once a row: a launcher, and values for the test's other parameters."""
    cases = [pytest.param(*one.values, *more, marks=one.marks, id=one.id) for one, *more in rows]
    return pytest.mark.parametrize(("under", *names.split()), cases, indirect=["under"])


def said_once(verdict: Verdict, tool: str, is_: str) -> None:
    assert verdict.report is not None, str(verdict)
    assert verdict.report["verdict"] == is_, str(verdict)
    assert verdict.gone(), str(verdict)
    assert verdict.output.splitlines().count(f"{tool}: {is_}") == 1, str(verdict)


@under_each("world", (MPIRUN, ("openmpi", 3, 1)), (HYDRA, ("pmi", 3, 1)))
def test_a_healthy_selftest_says_so_once(under, world):
    verdict = under(3, command=HEALTHY, deadline=200)
    said_once(verdict, "selftest", "healthy")
    assert verdict.codes == (0,)
    assert tuple(map(verdict.report["world"].get, ("launcher", "size", "nodes"))) == world


@under_each("", (KIND_SRUN,))
def test_a_healthy_selftest_under_srun_keeps_its_token_to_itself(under):
    seen: list[str] = []
    verdict = under(
        4, deadline=200, command=HEALTHY, after="environment",
        act=lambda _: seen.extend(tokens_and_who_shows_them()),
    )  # fmt: skip
    said_once(verdict, "selftest", "healthy")
    assert verdict.codes == (0,)
    world = verdict.report["world"]
    assert (world["size"], world["nodes"], world["launcher"]) == (4, 2, "slurm")
    assert len(seen) == 1, f"the token stands in {seen[1:]}"


def tokens_and_who_shows_them() -> list[str]:
    """Returns the token of these ranks' guards, then every place where other users can see it."""
    files = Path("/dev/shm").glob("oddrank-*/slurm-*/root-*-0")
    newest = max(files, key=lambda file: file.stat().st_mtime)
    token = newest.read_text().partition("#")[2]
    assert token
    shown = []
    for process in filter(str.isdigit, os.listdir("/proc")):
        for file in (Path("/proc", process, name) for name in ("cmdline", "environ")):
            with suppress(OSError):  # the process has ended
                if token.encode() in file.read_bytes():
                    shown.append(str(file))
    return [token, *shown]


@under_each("", (MPIRUN,), (HYDRA,), (SRUN,))
def test_a_healthy_sweep_measures_all_ranks(under):
    verdict = under(4, command=BENCH, deadline=100)
    said_once(verdict, "bench", "healthy")
    assert verdict.codes == (0,)
    rows = verdict.report["data"]["rows"]
    assert {row["n"] for row in rows} == {4}
    assert {8, 64 << 10} <= {row["bytes"] for row in rows}
    assert {row["check"] for row in rows} == {"ok"}


@under_each(
    "ranks command rank stage",
    (MPIRUN, 3, ONE_STAGE, 2, "environment"),
    (MPIRUN, 3, BENCH, 0, "devices"),
    (HYDRA, 3, ONE_STAGE, 2, "environment"),
    (HYDRA, 3, BENCH, 0, "devices"),
    (SRUN, 4, COLLECTIVES, 3, "collectives"),
    (KIND_SRUN, 4, COLLECTIVES, 0, "environment"),
    # SLURM clears a node whose only rank has ended.
    (SRUN, 2, BENCH, 0, "devices"),
    (SRUN, 2, BENCH, 1, "devices"),
    (TORCHRUN, 2, BENCH, 1, "devices"),
)
def test_a_rank_that_is_killed_is_named_before_the_launcher_ends_the_others(
    under, ranks, command, rank, stage
):
    verdict = under(ranks, command=command, kill=rank, at=stage, deadline=100)
    said_once(verdict, command[0], "odd")
    assert verdict.names(rank=rank, stage=stage), str(verdict)
    assert verdict.causes == {"dead"}
    assert 0 not in verdict.codes
    assert None not in verdict.codes
    (finding,) = verdict.report["findings"]
    if verdict.report["world"]["nodes"] == 2:
        assert finding["who"]["host"] == f"node{2 * rank // ranks}"


@under_each("says", (MPIRUN, "SIGTERM"), (HYDRA, "SIGTERM"), (KIND_SRUN, ""))
def test_a_job_that_is_ended_says_so_and_does_not_wait_on(request, under, says):
    def end(live):
        if says:
            live.launchers[0].send_signal(signal.SIGTERM)
        else:
            request.getfixturevalue("slurm").call("scancel", "--user", "root")

    verdict = under(
        2, command=ONE_STAGE, sleep=1, at="environment", deadline=100,
        after=f"{'join':<11}  2/2", act=end,
    )  # fmt: skip
    assert verdict.report is not None, str(verdict)  # the launcher did not end the judge first
    assert verdict.report["verdict"] == "incomplete"
    assert verdict.gone(), str(verdict)
    if not says:  # mpirun prints nothing more
        assert verdict.output.splitlines().count("selftest: incomplete") == 1
    assert says in verdict.report["summary"]


@pytest.mark.needs("netns")
def test_ranks_meet_where_the_first_hosts_own_name_means_loopback_there(tmp_path):
    own, others = tmp_path / "own", tmp_path / "others"
    own.write_text("127.0.0.1 localhost\n127.0.1.1 node0\n")  # as Debian writes it
    with two_hosts() as (first, second):
        others.write_text(f"127.0.0.1 localhost\n{first.address} node0\n")
        verdict = job(
            2, 2, hosts=(first.knowing(own), second.knowing(others)), master="node0",
            launcher="env", command=BENCH, deadline=60,
        )  # fmt: skip
    said_once(verdict, "bench", "healthy")
