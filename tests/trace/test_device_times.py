"""Times of calls on a device: from torch's Flight Recorder into the record."""

import json
import os
import subprocess
import sys
import weakref
from types import SimpleNamespace

import pytest

from oddrank.trace import collectives, device_times
from patience import PATIENCE
from texts import texts

pytestmark = pytest.mark.needs("torch")

NOTES = texts(__file__)["notes"]
# One GPU is enough for times of calls, and for graphs that are captured meanwhile.
ON_A_GPU = texts(__file__)["on a gpu"]
ENTRY = {
    "process_group": ["0", "default_pg"], "profiling_name": "nccl:all_reduce", "is_p2p": False,
    "collective_seq_id": 7, "p2p_seq_id": 0, "input_sizes": [[2, 3], [4]],
    "input_dtypes": ["BFloat16", "BFloat16"], "output_sizes": [[2, 3]],
    "output_dtypes": ["BFloat16"], "time_created_ns": 5_000, "duration_ms": 0.25, "retired": True,
}  # fmt: skip


def timed(folder, program, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], cwd=folder, text=True, stdout=subprocess.PIPE,
        env={**os.environ, "ODDRANK_DIR": f"{folder}/records"}, check=True,
        timeout=PATIENCE.seconds(100),
    )  # fmt: skip
    return collectives.read(done.stdout.strip(), timed=True)


def test_the_newest_calls_with_a_time_are_noted(tmp_path):
    entries = [
        ENTRY,
        {**ENTRY, "profiling_name": "nccl:_all_gather_base", "collective_seq_id": 8},
        {**ENTRY, "profiling_name": "nccl:send 0->1", "p2p_seq_id": 1, "time_created_ns": 4_000},
        {**ENTRY, "profiling_name": "nccl2:barrier", "input_sizes": [], "input_dtypes": [],
         "output_dtypes": [], "collective_seq_id": 9, "time_created_ns": 6_000},
        {**ENTRY, "duration_ms": None},  # goes on
        {key: value for key, value in ENTRY.items() if key != "duration_ms"},
        {**ENTRY, "process_group": ["3", "was destroyed"]},
    ]  # fmt: skip
    found = timed(tmp_path, NOTES, json.dumps(entries))
    assert {(c.group, c.ranks, c.state, c.end_ns - c.begin_ns) for c in found} == {
        ("0", (4, 8), "timed", 250_000)
    }
    assert [(c.begin_ns, c.seq, collectives.op_name(c.op), c.bytes, c.dtype) for c in found] == [
        (4_000, None, "send", 20, "bfloat16"),
        (5_000, 7, "all_reduce", 20, "bfloat16"),
        (5_000, 8, "all_gather_into_tensor", 20, "bfloat16"),
        (6_000, 9, "barrier", 0, ""),
    ]
    many = [{**ENTRY, "collective_seq_id": n, "time_created_ns": n} for n in range(300)]
    found = timed(tmp_path, NOTES, json.dumps(many[::-1]))
    assert [c.seq for c in found] == [*range(44, 300)]


@pytest.mark.gpu
def test_calls_of_nccl_have_times_and_graphs_are_captured_meanwhile(tmp_path):
    found = timed(tmp_path, ON_A_GPU)
    assert {(c.op, c.seq is None) for c in found} == {("all_reduce", False)}
    assert all(1_000 < c.end_ns - c.begin_ns < 1_000_000_000 for c in found)


def test_a_group_that_is_not_ready_is_asked_again_and_no_group_is_kept():
    class Group:
        ready = False

        def _enable_collectives_timing(self):
            if not self.ready:
                raise RuntimeError

    group, timed = Group(), weakref.WeakSet()
    c10d = SimpleNamespace(_world=SimpleNamespace(pg_map={group: ("nccl", None)}))
    assert device_times._has_timed(c10d, timed)
    assert not timed
    group.ready = True
    assert device_times._has_timed(c10d, timed)
    assert list(timed) == [group]
    kept = weakref.ref(group)
    c10d._world.pg_map.clear()
    del group
    assert kept() is None
    assert not device_times._has_timed(c10d, timed)
