"""Records of two real gloo ranks have exactly the collectives that they issued."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import forked
from oddrank import _native
from oddrank.trace.collectives import Collective

pytestmark = [pytest.mark.needs("torch-build"), pytest.mark.timeout(180)]
JOB = Path(__file__).with_name("collectives_job.py")


class Job:
    """Records and return values of both ranks, by scenario."""

    def __init__(self, ranks: list[dict[str, dict[str, Any]]]) -> None:
        self.ranks = ranks

    def result(self, scenario: str, rank: int = 0) -> Any:
        return self.ranks[rank][scenario]["result"]

    def records(self, scenario: str, rank: int = 0) -> list[Collective]:
        return [Collective(*fields) for fields in self.ranks[rank][scenario]["records"]]

    def states(self, scenario: str, rank: int = 0) -> list[str]:
        return [r.state for r in self.records(scenario, rank)]

    def issued(self, scenario: str, rank: int = 0) -> list[tuple[str, int]]:
        return [(r.op, r.bytes) for r in self.records(scenario, rank)]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    _native.torch()  # reports a _torch that does not fit, once
    folder = tmp_path_factory.mktemp("job")
    ranks = [
        forked.popen(
            [sys.executable, JOB, str(rank), "2", folder],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        output = [rank.communicate(timeout=170)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], "\n".join(output)
    return Job([json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(2)])


def consecutive(records: list[Collective]) -> bool:
    """Returns whether sequence numbers have no gap, in the order of issue."""
    first = records[0].seq
    assert first is not None
    return [r.seq for r in records] == list(range(first, first + len(records)))


def test_ddp_s_buckets_are_seen_though_no_python_line_issues_them(job: Job):
    # One bucket per parameter, last layer first: 2 and 3 x 2, then 3 and 4 x 3 floats.
    expected = [("allreduce_", 4 * n) for n in (2, 6, 3, 12)]
    for rank in (0, 1):
        assert job.issued("ddp_step", rank) == expected
        assert consecutive(job.records("ddp_step", rank))
        assert {r.group for r in job.records("ddp_step", rank)} == {"0"}


def test_functional_collectives_are_seen(job: Job):
    assert job.issued("functional_calls") == [
        ("allreduce_", 40),
        ("allgather_into_tensor_coalesced_", 40),
    ]
    assert job.result("functional_calls") == [20.0, 20.0]


def test_a_compiled_all_reduce_is_seen_each_time_it_runs_and_not_when_it_is_traced(job: Job):
    assert job.issued("compiled_all_reduce") == [("allreduce_", 28)] * 2
    assert job.result("compiled_all_reduce") == [[5.0] * 7, 1]


def test_send_and_recv_are_each_side_s_own(job: Job):
    batch = [("send", 8), ("recv_", 8)]
    assert job.issued("point_to_point", rank=0) == [
        *[("send", 48), ("recv_", 48), ("send", 48)],
        *batch,
    ]
    assert job.issued("point_to_point", rank=1) == [
        *[("recv_", 48), ("send", 48), ("recv_any_source_", 48)],
        *batch,
    ]
    assert job.result("point_to_point", rank=0) == [1.0] * 6
    assert job.result("point_to_point", rank=1) == [0.0] * 6


def test_each_group_has_its_own_numbers_and_a_barrier_has_no_bytes(job: Job):
    name = job.result("barriers_and_a_second_group")
    records = job.records("barriers_and_a_second_group")
    assert [(r.group, r.op, r.bytes) for r in records] == [
        (name, "allreduce_", 12),
        ("0", "allreduce_", 8),
        (name, "allreduce_", 16),
        (name, "barrier", 0),
        ("0", "barrier", 0),
        ("0", "monitored_barrier_", 0),
    ]
    assert consecutive([r for r in records if r.group == name])
    assert consecutive([r for r in records if r.group == "0"][:2])


@pytest.mark.parametrize("rank", [0, 1])
def test_bytes_are_the_same_on_root_and_others(job: Job, rank: int):
    assert job.issued("rooted_and_gathering", rank) == [
        ("broadcast_", 40),
        ("reduce_", 40),
        ("scatter_", 40),
        ("gather_", 40),
        ("allgather_", 40),
        ("alltoall_base_", 80),
        ("allreduce_coalesced_", 80),
    ]


def test_the_ranks_of_a_group_agree_on_every_number(job: Job):
    for scenario in ("ddp_step", "functional_calls", "rooted_and_gathering"):
        first, second = (
            [(r.group, r.seq, r.op, r.bytes) for r in job.records(scenario, rank)]
            for rank in (0, 1)
        )
        assert first == second
        assert first, scenario
        assert None not in {seq for _, seq, _, _ in first}, scenario


def test_the_thread_is_the_one_that_issued(job: Job):
    assert [r.thread for r in job.records("issued_by_two_threads")] == job.result(
        "issued_by_two_threads"
    )


def test_an_error_of_the_operation_reaches_the_user_as_without_the_recorder(job: Job):
    recorded, unrecorded = job.result("an_operation_that_raises")
    assert recorded == unrecorded
    # Recorded, but the call raised before the end.
    assert [(r.op, r.seq, r.state) for r in job.records("an_operation_that_raises")] == [
        ("broadcast_", None, "ended")
    ]


def test_after_stop_operations_work_and_are_not_recorded(job: Job):
    assert job.result("after_stop") == [2.0, 2.0]
    assert job.issued("after_stop") == [("allreduce_", 4)]


def test_training_gives_the_same_bits_with_the_recorder_and_before_it_was_loaded(job: Job):
    trained = job.result("ddp_step")
    assert trained == job.result("before_the_recorder")
    assert len(set(trained)) == 23  # as many parameters as the two layers have


def test_nothing_stays_open_that_has_ended(job: Job):
    silent = []
    for rank in (0, 1):
        for scenario in job.ranks[rank]:
            assert set(job.states(scenario, rank)) <= {"ended"}, scenario
            silent += [(scenario, rank)] * (not job.states(scenario, rank))
    assert silent == [
        ("before_the_recorder", 0), ("before_the_recorder", 1), ("stopped_while_one_is_open", 1)
    ]  # fmt: skip


def test_each_has_its_times(job: Job):
    for scenario in ("ddp_step", "point_to_point", "rooted_and_gathering"):
        assert job.records(scenario), scenario
        for record in job.records(scenario):
            assert record.begin_ns is not None
            assert record.end_ns is not None
            assert record.begin_ns < record.end_ns < record.begin_ns + 60e9


def test_a_work_ends_by_itself_a_send_as_its_work_is_waited_for_or_dropped(job: Job):
    for rank in (0, 1):
        after_completion, kept, dropped = job.result("waited_for_and_not", rank)
        assert after_completion == ["ended"] * 20
        assert kept == ["open", "ended"]  # send, recv
        assert dropped == ["ended", "ended"]


def test_what_is_open_as_recording_stops_still_ends(job: Job):
    assert job.result("stopped_while_one_is_open", rank=0) == [["open"], ["ended"]]
    assert job.result("stopped_while_one_is_open", rank=1) == [[], []]


def test_the_profiler_sees_what_it_sees_without_the_recorder(job: Job):
    assert job.result("profiled") == 2
    assert job.states("profiled") == ["ended", "ended"]


def test_four_threads_and_a_reader_lose_nothing(job: Job):
    assert job.result("many_threads_at_once") <= 4
    by_group: dict[str, list[Collective]] = {}
    for record in job.records("many_threads_at_once"):
        by_group.setdefault(record.group, []).append(record)
    assert [len(records) for records in by_group.values()] == [100] * 4
    assert all(consecutive(records) for records in by_group.values())


def test_a_forked_child_ends_nothing_in_its_parent_s_record(job: Job):
    assert job.result("forked_while_one_is_open", rank=0) == ["open"]
