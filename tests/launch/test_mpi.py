"""Commands of many ranks under MPI's launchers, which end all ranks once one has failed."""

import signal

import pytest

from job import job

pytestmark = [pytest.mark.needs("torch"), pytest.mark.timeout(300)]
BENCH = ("bench", "run", "--sizes", "8:64K:x8", "--budget", "2", "--precision", "20%")
ONE_STAGE = ("selftest", "--quick", "--only", "device")


@pytest.fixture(
    params=[
        pytest.param("mpirun", marks=pytest.mark.needs("mpi")),
        pytest.param("hydra", marks=pytest.mark.needs("hydra")),
    ]
)
def launcher(request: pytest.FixtureRequest) -> str:
    return request.param


def test_a_healthy_selftest_says_so_once(launcher):
    verdict = job(3, launcher=launcher, command=("selftest", "--quick"), deadline=200)
    assert verdict.healthy(), str(verdict)
    assert verdict.gone()
    assert verdict.codes == (0,)
    assert verdict.output.count("selftest: healthy") == 1
    names = {"mpirun": "openmpi", "hydra": "pmi"}
    assert verdict.report["world"]["launcher"] == names[launcher]


def test_a_healthy_sweep_measures_all_ranks(launcher):
    verdict = job(3, launcher=launcher, command=BENCH, deadline=100)
    assert verdict.healthy(), str(verdict)
    assert verdict.gone()
    assert {row["n"] for row in verdict.report["data"]["rows"]} == {3}


@pytest.mark.parametrize(
    ("command", "rank", "stage"), [(ONE_STAGE, 2, "environment"), (BENCH, 0, "devices")]
)
def test_a_rank_that_is_killed_is_named_before_the_others_are_ended(launcher, command, rank, stage):
    verdict = job(3, launcher=launcher, command=command, kill=rank, at=stage, deadline=100)
    assert verdict.names(rank=rank, stage=stage), str(verdict)
    assert verdict.causes == {"killed"}
    assert verdict.output.count(f"{command[0]}: odd") == 1
    assert verdict.codes not in ((0,), (None,))
    assert verdict.gone(), str(verdict)


def test_ranks_that_the_launcher_was_told_to_end_say_so_in_the_report_and_do_not_wait_on(launcher):
    verdict = job(
        2,
        launcher=launcher,
        command=ONE_STAGE,
        sleep=1,
        at="environment",
        deadline=100,
        after=f"{'join':<11}  2/2",
        act=lambda live: live.launchers[0].send_signal(signal.SIGTERM),
    )
    assert verdict.gone(), str(verdict)
    assert verdict.report is not None, str(verdict)  # the launcher did not end the judge first
    assert verdict.report["verdict"] == "incomplete"
    assert "SIGTERM" in verdict.report["summary"]
    assert verdict.seconds < 100
