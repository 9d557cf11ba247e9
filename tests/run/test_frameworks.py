"""`oddrank run` in trainings with frameworks; `make frameworks` tries more, with more faults."""

import pytest

from run.framework_jobs import ODD, SAYS, framework_job
from run.watched_job import named


@pytest.mark.job
@pytest.mark.timeout(600)
@pytest.mark.needs("torch-build")
@pytest.mark.parametrize(
    ("framework", "launcher", "fault"),
    [
        pytest.param("transformers", "torchrun", "hang", marks=pytest.mark.needs("transformers")),
        pytest.param("lightning", "its own", "hang", marks=pytest.mark.needs("lightning")),
        ("spawn", "its own", "worker"),
    ],
)
def test_a_rank_that_hangs_is_named_with_its_line_and_all_processes_end(framework, launcher, fault):
    with framework_job(framework, launcher, fault) as job:
        assert job.ends() != [0]
        assert named(job.report) == ([ODD], "host-stuck"), job.output[-5000:]
        assert SAYS[fault] in job.report["summary"]
