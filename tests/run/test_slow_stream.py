"""Ranks on GPUs: one whose stream is slow is late, though all hosts come to the call together."""

from pathlib import Path

import pytest

from run.watched_job import named, watched_job


@pytest.mark.gpu
def test_a_rank_whose_stream_is_slow_is_named_by_the_times_of_its_device():
    torch = pytest.importorskip("torch")
    if torch.cuda.device_count() < 2:
        pytest.skip("NCCL takes no two ranks on one GPU")
    options = ("--json", "report.json", "--report-every", "1")
    script = Path(__file__).with_name("slow_stream.py")
    with watched_job("late", 1, steps=400, ranks=2, options=options, script=script) as job:
        assert job.ends() == [0], job.output[-5000:]
        assert named(job.report) == ([1], "late-arrival"), job.report["summary"]
        evidence = job.report["findings"][0]["evidence"]
        assert "times that its device was in the calls" in [each["source"] for each in evidence]
