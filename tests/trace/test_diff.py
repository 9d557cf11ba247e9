"""`oddrank trace diff`: the first call, step or collective in which two ranks differ."""

import json
import os
import subprocess
import sys

import pytest

from oddrank.trace import jobs
from oddrank.trace.diff import History, Item, compare, read, text

SCRIPT = """
import os, signal
import oddrank
oddrank.arm()

def forward():
    pass

def backward():
    pass

def skip_batch():
    pass

def train(step):
    oddrank.step(step)
    forward()
    if os.environ["RANK"] == "1" and step == STEPS - 1:
        skip_batch()
    backward()

for step in range(STEPS):
    train(step)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def job(run_ranks, tmp_path_factory):
    return run_ranks(tmp_path_factory.mktemp("job"), SCRIPT.replace("STEPS", "4"))


def step(number):
    return Item("step", str(number), "", 1)


def call(name):
    return Item("call", name, "/x/train.py", 1)


def collective(sequence, operation="allreduce_", size=4096, group="0"):
    return Item("collective", operation, group, 1, sequence, size)


def history(*items, rank=0, whole=False):
    return History(rank, "node1", 100 + rank, items, whole)


def test_a_rank_that_calls_something_else_is_shown_from_the_last_common_step(job):
    found = compare(*map(read, jobs.find([str(job)]).files))
    assert found.begin.name == "3"
    assert (found.common, found.last.name) == (2, "forward")
    assert [item.name for item in found.a_next] == ["backward"]
    assert [item.name for item in found.b_next] == ["skip_batch", "backward"]
    assert found.a.steps == [0, 1, 2, 3]


def test_a_window_whose_beginning_is_overwritten_has_only_whole_steps(run_ranks, tmp_path):
    job = run_ranks(tmp_path, SCRIPT.replace("STEPS", "9000"))
    found = compare(*map(read, jobs.find([str(job)]).files))
    assert not found.a.whole
    assert found.a.steps[0] > 0
    assert next(iter(text(found))).endswith(
        f": steps {found.a.steps[0]} to 8999 in its record, earlier events are overwritten"
    )
    assert found.a.steps[-1] == 8999
    assert [item.name for item in found.b_next] == ["skip_batch", "backward"]


def test_a_step_longer_than_the_window_is_said_to_be_overwritten(run_ranks, tmp_path):
    work = "    for _ in range(STEPS and 200_000):\n        forward()\n"
    busy = SCRIPT.replace("    forward()\n", work, 1).replace("STEPS", "1")
    found = compare(*map(read, jobs.find([str(run_ranks(tmp_path, busy))]).files))
    assert (found.a.steps, found.a.overwritten) == ([], (0,))
    assert next(iter(text(found))).endswith(
        ": no step in its record, the calls of step 0 are overwritten (raise ODDRANK_TRACE_MB)"
    )


def test_a_rank_that_stopped_has_nothing_more():
    a = history(step(7), call("f"), call("g"), step(8), call("f"), whole=True)
    b = history(step(6), step(7), call("f"), rank=1)
    found = compare(a, b)
    assert found.begin.name == "7"
    assert found.last.name == "f"
    assert [str(item) for item in found.a_next[1:]] == ["step 8", "call f (/x/train.py)"]
    assert found.b_next == ()
    assert list(text(found))[-2:] == ["then rank 1 (node1, pid 101):", "  nothing more"]


def test_a_skipped_collective_and_another_operation_are_differences():
    a = history(step(1), collective(4), collective(5), call("f"))
    b = history(step(1), collective(4), call("f"), rank=1)
    found = compare(a, b)
    assert (found.common, str(found.last)) == (2, "allreduce #4 of group 0, 4096 bytes")
    other = history(step(1), collective(4, "broadcast_"), rank=1)
    assert compare(a, other).common == 1


def test_another_size_or_number_of_a_collective_is_a_difference_and_an_unknown_number_is_none():
    a = history(step(1), collective(4), call("f"))
    larger = history(step(1), collective(4, size=8192), call("f"), rank=1)
    assert compare(a, larger).common == 1
    behind = history(step(1), collective(3), call("f"), rank=1)  # skipped one long ago
    assert [str(item) for item in compare(a, behind).b_next[:1]] == [
        "allreduce #3 of group 0, 4096 bytes"
    ]
    assert compare(a, history(step(1), collective(None), call("g"), rank=1)).common == 2


def test_groups_that_only_one_of_the_two_is_in_are_compared_by_what_is_done_in_them():
    a = history(step(1), collective(4), collective(9, group="5"), call("f"))
    b = history(step(1), collective(4), collective(7, group="6"), call("f"), rank=1)
    assert compare(a, b).common == 4
    b = history(step(1), collective(4), collective(5), call("f"), rank=1)
    assert compare(a, b).common == 2


def test_in_a_second_epoch_the_steps_of_the_first_are_no_anchors():
    epoch = [item for i in range(10) for item in (step(i), call("f"))]
    a = history(*epoch, *epoch[:12])  # up to step 5 of the second epoch
    b = history(*epoch, *epoch[:7], rank=1)  # up to step 3, before f
    found = compare(a, b)
    assert (found.begin.name, found.common, found.last.name) == ("3", 1, "3")
    assert [item.name for item in found.a_next] == ["f", "4", "f", "5", "f"]
    assert found.b_next == ()


def test_two_that_have_recorded_nothing_are_no_difference():
    found = compare(history(whole=True), history(rank=1, whole=True))
    assert list(text(found))[2:] == ["neither record has an event of its main thread"]


def test_without_steps_it_compares_from_arm_or_from_a_collective_with_one_number():
    a = history(call("f"), call("g"), whole=True)
    b = history(call("f"), call("h"), rank=1, whole=True)
    assert compare(a, b).last.name == "f"
    assert compare(a, b).begin is None
    assert list(text(compare(a, b)))[2] == "the same since arm(): one call, step or collective:"
    a = history(call("x"), collective(8), call("g"))
    b = history(collective(8), call("h"), rank=1)
    assert compare(a, b).begin == collective(8)


def test_windows_without_anything_in_common_are_described():
    found = compare(history(step(1), step(2)), history(step(7), step(8), rank=1))
    assert not found.compared
    assert list(text(found)) == [
        "rank 0 (node1, pid 100): steps 1 to 2 in its record, earlier events are overwritten",
        "rank 1 (node1, pid 101): steps 7 to 8 in its record, earlier events are overwritten",
        "these records have nothing in common: no step, no collective with the same number",
    ]


def test_the_command_takes_files_or_ranks_of_the_newest_job_and_writes_json(job, tmp_path):
    def run(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "oddrank", "trace", "diff", *map(str, arguments)],
            env={**os.environ, "ODDRANK_DIR": str(job.parent)},
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    done = run(*jobs.find([str(job)]).files)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[2] == "the same since step 3: 2 calls, steps and collectives; the last one:"
    assert lines[3].startswith("  call forward (")
    assert "  call skip_batch" in done.stdout
    file = tmp_path / "diff.json"
    assert run("0", "1", "--json", file).stdout == done.stdout
    report = json.loads(file.read_text())
    assert report["tool"] == "trace diff"
    assert report["data"]["last_common"]["name"] == "forward"
    for side, why in (("7", "no record of rank 7 here"), (job, "2 records: name one, such as")):
        refused = run("0", side)
        assert refused.returncode == 2
        assert why in refused.stderr
