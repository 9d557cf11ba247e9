"""Records of real gloo ranks have exactly the collectives that they issued."""

import json
import os
import sys
from pathlib import Path

import pytest

import gloo_ranks
from oddrank import _native
from patience import PATIENCE

pytestmark = [pytest.mark.needs("torch-build"), pytest.mark.timeout(300)]
JOB = Path(__file__).with_name("collectives_job.py")


@pytest.mark.parametrize(("world", "scenarios"), [(2, 9), (4, 4)])
def test_each_collective_is_recorded_with_its_group_bytes_and_end(tmp_path, world, scenarios):
    _native.torch()  # reports a _torch that does not fit, once
    with gloo_ranks.ranks(
        [sys.executable, JOB, tmp_path], tmp_path, world,
        # The job imports helpers of tests.
        PYTHONPATH=os.pathsep.join([str(JOB.parents[1]), os.environ.get("PYTHONPATH", "")]),
    ) as started:  # fmt: skip
        output = [rank.communicate(timeout=PATIENCE.seconds(170))[0] for rank in started]
        assert [rank.returncode for rank in started] == [0] * world, "\n".join(output)
    for rank in range(world):
        wrong = json.loads((tmp_path / f"rank{rank}.json").read_text())
        assert len(wrong) == scenarios
        assert not any(wrong.values()), f"rank {rank}: " + "\n".join(wrong.values())


def test_what_is_no_sink_is_refused():
    with pytest.raises(ValueError, match="PyCapsule"):
        _native.torch().start_collectives(object())
