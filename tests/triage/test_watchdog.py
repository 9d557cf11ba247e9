"""Checks what is read out of the lines of torch's watchdogs."""

from pathlib import Path

import pytest

from oddrank.triage.evidence import watchdog
from oddrank.triage.facts import Advice, Fact, Mismatch, Progress, World
from triage.facts_of import Texts, facts_of, item_of


def read(tmp_path: Path, text: str) -> list[Fact]:
    return Texts(tmp_path, watchdog.KIND).facts(text)


def progress(tmp_path: Path, text: str) -> list[Progress]:
    return [fact for fact in read(tmp_path, text) if isinstance(fact, Progress)]


CAUGHT = "Watchdog caught collective operation timeout: WorkNCCL("
RAN = "Timeout(ms)=600000) ran for 600011 milliseconds before timing out.\n"
NUMELS = "SeqNum=41, OpType=ALLREDUCE, NumelIn=16, NumelOut=16, "
STATUS = "last enqueued NCCL work: 45, last completed NCCL work: 40.\n"
FILE = "ProcessGroupNCCL.cpp"
DEFAULT = "[PG ID 0 PG GUID 0(default_pg) Rank 3]"
GENERATIONS = {
    "1.12": f"[E {FILE}:719] [Rank 3] {CAUGHT}OpType=ALLREDUCE, {RAN}",
    "1.13": f"[E {FILE}:821] [Rank 3] {CAUGHT}SeqNum=41, OpType=ALLREDUCE, TensorShape=[8, 2], "
    f"{RAN}",
    "2.2": f"[rank3]:[E {FILE}:523] [Rank 3] {CAUGHT}{NUMELS}{RAN}",
    "2.3": f"[rank3]:[E {FILE}:563] [Rank 3] {CAUGHT}{NUMELS}{RAN}"
    f"[rank3]:[E {FILE}:1537] [PG 0 Rank 3] Timeout at NCCL work: 41, {STATUS}",
    "2.4": f"[rank3]:[E1016 03:31:38.928019586 {FILE}:607] [Rank 3] {CAUGHT}{NUMELS}{RAN}"
    f"[rank3]:[E1016 03:31:38.929220797 {FILE}:1664] [PG 0 (default_pg) Rank 3] Exception (either "
    f"an error or timeout) detected by watchdog at work: 41, {STATUS}",
    "2.6": f"[rank3]:[E419 10:42:28.858931807 {FILE}:616] [Rank 3] {CAUGHT}{NUMELS}{RAN}"
    f"[rank3]:[E419 10:42:28.861967180 {FILE}:1785] {DEFAULT} Exception (either an error or "
    f"timeout) detected by watchdog at work: 41, {STATUS}",
    "2.13": f"[rank3]:[E129 16:38:47.714693059 {FILE}:683] [Rank 3] {CAUGHT}{NUMELS}{RAN}"
    f"[rank3]:[E129 16:38:47.714849575 {FILE}:2241] {DEFAULT}  failure detected by watchdog at "
    "work sequence id: 41 PG status: last enqueued work: 45, last completed work: 40\n",
}


@pytest.mark.parametrize("version", GENERATIONS)
def test_each_generation_of_torch_says_which_rank_waits_in_which_call(tmp_path, version):
    text = GENERATIONS[version]
    (found,) = progress(tmp_path, text)
    assert (found.process.rank, found.timed_out) == (3, True)
    assert found.group.text == "default_pg" or version == "1.12"
    if version != "1.12":  # which names no number
        assert [(call.seq, call.op) for call in found.open] == [(41, "all_reduce")]
    if "last enqueued" in text:
        assert (found.enqueued, found.completed, found.open_count) == (45, 40, 5)


def lines(rank: int, member: int, seq: int, group: str = "PG ID 5 PG GUID 37(TP)", op="ALLREDUCE"):
    at = f"[rank{rank}]:[E129 16:38:47.714693059 ProcessGroupNCCL.cpp:683]"
    return (
        f"{at} [Rank {member}] {CAUGHT}SeqNum={seq}, OpType={op}, NumelIn=16, NumelOut=16, "
        "Timeout(ms)=600000) ran for 600011 milliseconds before timing out.\n"
        f"{at} [{group} Rank {member}]  failure detected by watchdog at work sequence id: {seq} "
        f"PG status: last enqueued work: {seq + 3}, last completed work: {seq - 1}\n"
    )


def test_the_rank_is_that_of_the_prefix_not_that_in_the_group(tmp_path):
    (found,) = progress(tmp_path, lines(9, 1, 5))
    assert found.process.rank == 9
    assert (found.group.name, found.group.text, found.group.ranks) == ("37", "TP", ())


def test_without_a_prefix_the_rank_of_another_group_than_the_default_one_is_not_known(tmp_path):
    text = lines(9, 1, 5).replace("[rank9]:", "")
    found = progress(tmp_path, text)
    assert [f.process.rank for f in found if f.group.name == "37"] == [None]


def test_the_file_names_the_rank_where_no_prefix_does(tmp_path):
    path = tmp_path / "log_rank9.txt"
    path.write_text(lines(9, 1, 5).replace("[rank9]:", ""))
    found = facts_of(watchdog.KIND, path)
    assert {f.process.rank for f in found if isinstance(f, Progress)} == {9}


def test_a_rank_with_the_same_number_in_its_group_implies_all_below(tmp_path):
    found = progress(tmp_path, lines(7, 7, 5) + lines(3, 3, 5))
    assert {f.group.ranks for f in found} == {tuple(range(8))}


def test_two_groups_of_one_name_are_kept_apart(tmp_path):
    found = progress(tmp_path, lines(2, 0, 5) + lines(4, 0, 6))
    assert len({f.group for f in found}) == 2
    assert {f.group.ranks for f in found} == {()}


def test_two_timeouts_of_one_rank_in_two_groups_are_two(tmp_path):
    found = progress(tmp_path, lines(9, 1, 5) + lines(9, 1, 7, "PG ID 12 PG GUID 100(EP)"))
    assert {(f.group.text, f.open[0].seq) for f in found} == {("TP", 5), ("EP", 7)}


def test_numbers_far_apart_that_name_no_group_are_not_compared(tmp_path):
    text = "".join(
        f"[E ProcessGroupNCCL.cpp:458] [Rank {rank}] {CAUGHT}SeqNum={seq}, OpType=ALLREDUCE, "
        "Timeout(ms)=1800000) ran for 25624887 milliseconds before timing out.\n"
        for rank, seq in ((0, 9000), (7, 600))
    )
    found = progress(tmp_path, text)
    assert len({f.group for f in found}) == 2


def test_a_rank_that_the_dump_signal_came_from_timed_out_itself(tmp_path):
    text = (
        "[rank0]:[E129 16:38:47.6 ProcessGroupNCCL.cpp:1858] [PG ID 0 PG GUID 0(default_pg) Rank 0]"
        " Received a dump signal due to a collective timeout from  rank 8 and we will try our best "
        "to dump the debug info. Last enqueued NCCL work: 62, last completed NCCL work: 62.\n"
    )
    found = {f.process.rank: f for f in progress(tmp_path, text)}
    assert found[8].timed_out
    assert not found[0].timed_out
    assert (found[0].enqueued, found[0].completed) == (62, 62)


def test_another_operation_at_the_same_number_is_a_mismatch(tmp_path):
    text = lines(0, 0, 5) + lines(1, 1, 5) + lines(2, 2, 5, op="BROADCAST")
    facts = read(tmp_path, text)
    (found,) = [fact for fact in facts if isinstance(fact, Mismatch)]
    assert (found.seq, found.differs) == (5, "op")
    assert [(v.call.op, v.ranks) for v in found.variants] == [
        ("all_reduce", (0, 1)),
        ("broadcast", (2,)),
    ]


def test_sends_and_receives_are_not_numbered_like_calls_of_all(tmp_path):
    (found,) = progress(tmp_path, lines(3, 1, 5, op="SEND"))
    assert (found.open, found.enqueued, found.timed_out) == ((), None, True)


def test_detailed_debugging_shows_a_mismatch_with_both_sides(tmp_path):
    text = (
        "[rank1]: RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running "
        "collective: CollectiveFingerPrint(SequenceNumber=5, OpType=ALLREDUCE, TensorShape=[20], "
        "TensorDtypes=Float, TensorDeviceTypes=TensorOptions(dtype=float)), but Rank 0 is running "
        "collective: CollectiveFingerPrint(SequenceNumber=5, OpType=BROADCAST, TensorShape=[20], "
        "TensorDtypes=Float, TensorDeviceTypes=TensorOptions(dtype=float)).\n"
    )
    facts = read(tmp_path, text)
    (found,) = [fact for fact in facts if isinstance(fact, Mismatch)]
    assert {v.ranks: v.call.op for v in found.variants} == {(1,): "all_reduce", (0,): "broadcast"}


def test_calls_without_numbers_say_nothing_of_how_far_the_ranks_have_come(tmp_path):
    text = (
        "[rank0]: RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running "
        "collective: CollectiveFingerPrint(OpType=ALLREDUCE), but Rank 1 is running collective: "
        "CollectiveFingerPrint(OpType=BROADCAST).\n"
    )
    assert [found.completed for found in progress(tmp_path, text)] == [None, None]


def test_the_desync_report_says_who_is_behind(tmp_path):
    text = (
        "[rank0]:[E ProcessGroupNCCL.cpp:500] \n\t - [0] Timeout at collective: ALLREDUCE, #3\n"
        "\t - To our best knowledge, the lagging/dead/mismatched ranks that caused it are:\n"
        "\t   - [0, 2] joined but didn't finish collective #3 (count from 1)\n"
        "\t   - [1] finished collective #2, but didn't join collective #3 (count from 1)\n"
    )
    found = {f.process.rank: f for f in progress(tmp_path, text)}
    assert (found[1].completed, found[1].open) == (2, ())
    assert [call.seq for call in found[0].open] == [3] == [call.seq for call in found[2].open]


def test_monitored_barrier_names_those_who_did_not_come(tmp_path):
    text = (
        "[rank0]:[E1 10:00:00.0 ProcessGroupGloo.cpp:138] [Rank 0]: Ranks 1, 3 failed to "
        "pass monitoredBarrier in 5000 ms\n"
    )
    found = {f.process.rank: f for f in progress(tmp_path, text)}
    assert {rank for rank, f in found.items() if not f.open} == {1, 3}
    assert found[0].open[0].op == "monitored_barrier"


def test_a_log_advises_the_flight_recorder_and_names_its_dumps(tmp_path):
    text = (
        "[rank0]:[E101 00:00:00.1] Stack trace of the failed collective not found, potentially "
        "because FlightRecorder is disabled.\n"
        "[rank0]:[I1] Finished writing Flight Recorder debug info to /tmp/fr/rank_0\n"
    )
    facts = read(tmp_path, text)
    assert [fact.key for fact in facts if isinstance(fact, Advice)] == [
        "flight-recorder",
        "flight-recorder-dump:/tmp/fr/rank_0",
    ]


def test_only_the_last_start_of_the_ranks_counts(tmp_path):
    again = "[INFO] [default] Worker group FAILED. 2/3 attempts left; will restart worker group\n"
    found = progress(tmp_path, lines(2, 2, 5) + again + lines(3, 3, 8))
    assert {f.process.rank for f in found} == {3}


def test_all_ranks_that_wrote_lines_are_the_world(tmp_path):
    text = "".join(f"[rank{rank}]: hello\n" for rank in range(4)) + lines(2, 2, 5)
    facts = read(tmp_path, text)
    assert [fact.size for fact in facts if isinstance(fact, World)] == [4]


@pytest.mark.needs("samples")
def test_the_sample_with_rays_prefixes_is_about_global_rank_9(samples):
    path = samples / "watchdog_logs" / "nemo_rl_ray_prefixed_pg_rank_trap.log"
    facts = facts_of(watchdog.KIND, path)
    found = [fact for fact in facts if isinstance(fact, Progress) and fact.timed_out]
    assert {f.process.rank for f in found} == {9}
    assert {f.group.text: (f.open[0].seq, f.open_count) for f in found} == {
        "TENSOR_MODEL_PARALLEL_GROUP": (49387, 20),
        "EXPERT_MODEL_PARALLEL_GROUP": (52229, 30),
    }


@pytest.mark.needs("samples")
def test_the_sample_of_a_64_gpu_job_has_no_timeouts(samples):
    assert not watchdog.KIND.sniff(item_of(samples / "megatron_logs" / "meg_gpt2_perf_n16.out"))
