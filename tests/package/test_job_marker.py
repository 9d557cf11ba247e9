"""The marker `job` is on every test that starts ranks, directly or not."""

from functools import partial
from types import SimpleNamespace

import pytest

from job import job
from job_marker import starts_a_job
from netns import two_hosts


class Case:
    def run(self):
        return job(2)


@pytest.fixture
def hosts():
    with two_hosts() as made:
        yield made


def only_mentions_it():
    return "job"


@pytest.mark.needs("netns")
def test_a_test_starts_jobs_by_its_code_its_fixtures_or_its_parameters(request, hosts):
    assert request.node.get_closest_marker("job")
    for function, parameter, starts in (
        (lambda: [job(ranks) for ranks in (1, 2)], None, True),
        (only_mentions_it, None, False),
        (only_mentions_it, partial(Case.run, Case()), True),
        (only_mentions_it, ["python", "-m", "torch.distributed.run"], True),
    ):
        call = SimpleNamespace(params={"parameter": parameter})
        item = SimpleNamespace(function=function, callspec=call, _fixtureinfo=None)
        assert starts_a_job(item) == starts, parameter
