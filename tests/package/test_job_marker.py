"""The marker `job` is on every test that starts ranks, directly or not."""

from functools import partial
from types import SimpleNamespace

import pytest

from job import job
from job_marker import starts_a_job
from netns import two_hosts

TORCHRUN = ["python", "-m", "torch.distributed.run"]


def run_once(case):
    return case.run()


class Case:
    def run(self):
        return job(2)


class Harmless:
    def run(self):
        return len("job")


@pytest.fixture
def hosts():
    with two_hosts() as made:
        yield made


@pytest.fixture
def nothing():
    return None


def calls_it():
    job(2)


def calls_a_helper():
    with two_hosts():
        pass


def calls_it_inside():
    return [job(ranks) for ranks in (1, 2)]


def does_not():
    assert Harmless().run() == 3


def item_of(function, parameter=None, info=None):
    """Returns a collected test with the attributes that the marker reads."""
    call = SimpleNamespace(params={"parameter": parameter})
    return SimpleNamespace(function=function, callspec=call, _fixtureinfo=info)


def test_a_test_that_calls_the_harness_starts_jobs_and_one_that_only_mentions_it_does_not():
    for function in (calls_it, calls_a_helper, calls_it_inside):
        assert starts_a_job(item_of(function)), function
    for parameter, starts in (
        (None, False), (Case(), True), (partial(run_once, Case()), True), (TORCHRUN, True),
        (Harmless(), False),
    ):  # fmt: skip
        assert starts_a_job(item_of(does_not, parameter)) == starts, parameter


def test_a_fixture_that_starts_nothing_does_not_count(request, nothing):
    assert not starts_a_job(item_of(does_not, info=request.node._fixtureinfo))


@pytest.mark.needs("netns")
def test_a_fixture_that_makes_hosts_counts(request, hosts):
    assert request.node.get_closest_marker("job")
