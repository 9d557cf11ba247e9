"""Checks what is read out of the lines of torch's watchdogs."""

import pytest

from oddrank.triage.evidence.watchdog import KIND
from oddrank.triage.facts import Advice, Mismatch, Progress, World
from triage.facts_of import facts_of, item_of, of_kind, reader

log = reader(KIND)


def progress(log, text):
    return of_kind(log.facts(text), Progress)


def by_rank(log, text):
    return {fact.process.rank: fact for fact in progress(log, text)}


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


def test_each_generation_of_torch_says_which_rank_waits_in_which_call(log):
    for version, text in GENERATIONS.items():
        (found,) = progress(log, text)
        assert (found.process.rank, found.timed_out) == (3, True), version
        named = version != "1.12"  # which names no number
        assert found.group.text == "default_pg" or not named, version
        calls = [(41, "all_reduce")] * named
        assert [(call.seq, call.op) for call in found.open] == calls, version
        counted = (45, 40, 5) if "last enqueued" in text else (None, None, len(calls))
        assert (found.enqueued, found.completed, found.open_count) == counted, version


def lines(rank: int, member: int, seq: int, group: str = "PG ID 5 PG GUID 37(TP)", op="ALLREDUCE"):
    at = f"[rank{rank}]:[E129 16:38:47.714693059 ProcessGroupNCCL.cpp:683]"
    return (
        f"{at} [Rank {member}] {CAUGHT}SeqNum={seq}, OpType={op}, NumelIn=16, NumelOut=16, "
        "Timeout(ms)=600000) ran for 600011 milliseconds before timing out.\n"
        f"{at} [{group} Rank {member}]  failure detected by watchdog at work sequence id: {seq} "
        f"PG status: last enqueued work: {seq + 3}, last completed work: {seq - 1}\n"
    )


def test_whose_rank_and_group_a_line_names(log, tmp_path):
    (found,) = progress(log, lines(9, 1, 5))
    assert found.process.rank == 9  # not the rank in the group
    assert (found.group.name, found.group.text, found.group.ranks) == ("37", "TP", ())
    bare = lines(9, 1, 5).replace("[rank9]:", "")
    assert [f.process.rank for f in progress(log, bare) if f.group.name == "37"] == [None]
    path = tmp_path / "log_rank9.txt"
    path.write_text(bare)
    assert {f.process.rank for f in of_kind(facts_of(KIND, path), Progress)} == {9}
    # A rank with the same number in its group implies all below.
    both = progress(log, lines(7, 7, 5) + lines(3, 3, 5))
    assert {f.group.ranks for f in both} == {tuple(range(8))}


def test_groups_that_may_be_two_are_not_compared(log):
    of_one_name = progress(log, lines(2, 0, 5) + lines(4, 0, 6))
    assert len({f.group for f in of_one_name}) == 2
    assert {f.group.ranks for f in of_one_name} == {()}
    of_one_rank = progress(log, lines(9, 1, 5) + lines(9, 1, 7, "PG ID 12 PG GUID 100(EP)"))
    assert {(f.group.text, f.open[0].seq) for f in of_one_rank} == {("TP", 5), ("EP", 7)}
    far_apart = "".join(
        f"[E ProcessGroupNCCL.cpp:458] [Rank {rank}] {CAUGHT}SeqNum={seq}, OpType=ALLREDUCE, {RAN}"
        for rank, seq in ((0, 9000), (7, 600))
    )
    assert len({f.group for f in progress(log, far_apart)}) == 2


def test_a_rank_that_the_dump_signal_came_from_timed_out_itself(log):
    found = by_rank(
        log,
        "[rank0]:[E129 16:38:47.6 ProcessGroupNCCL.cpp:1858] [PG ID 0 PG GUID 0(default_pg) Rank 0]"
        " Received a dump signal due to a collective timeout from  rank 8 and we will try our best "
        "to dump the debug info. Last enqueued NCCL work: 62, last completed NCCL work: 62.\n",
    )
    assert {rank: f.timed_out for rank, f in found.items()} == {8: True, 0: False}
    assert (found[0].enqueued, found[0].completed) == (62, 62)


DIFFER = (
    "[rank{0}]: RuntimeError: Detected mismatch between collectives on ranks. Rank {0} is running "
    "collective: CollectiveFingerPrint({2}OpType=ALLREDUCE{3}), but Rank {1} is running "
    "collective: CollectiveFingerPrint({2}OpType=BROADCAST{3}).\n"
)
SHAPE = ", TensorShape=[20], TensorDtypes=Float, TensorDeviceTypes=TensorOptions(dtype=float)"


def test_other_operations_at_the_same_number_are_a_mismatch(log):
    facts = log.facts(lines(0, 0, 5) + lines(1, 1, 5) + lines(2, 2, 5, op="BROADCAST"))
    (found,) = of_kind(facts, Mismatch)
    assert (found.seq, found.differs) == (5, "op")
    assert {v.ranks: v.call.op for v in found.variants} == {(0, 1): "all_reduce", (2,): "broadcast"}
    (found,) = of_kind(log.facts(DIFFER.format(1, 0, "SequenceNumber=5, ", SHAPE)), Mismatch)
    assert {v.ranks: v.call.op for v in found.variants} == {(1,): "all_reduce", (0,): "broadcast"}
    # Calls without numbers say nothing of how far the ranks have come.
    assert [f.completed for f in progress(log, DIFFER.format(0, 1, "", ""))] == [None, None]


def test_sends_and_receives_are_not_numbered_like_calls_of_all(log):
    (found,) = progress(log, lines(3, 1, 5, op="SEND"))
    assert (found.open, found.enqueued, found.timed_out) == ((), None, True)


def test_reports_of_torch_say_who_is_behind(log):
    desync = by_rank(
        log,
        "[rank0]:[E ProcessGroupNCCL.cpp:500] \n\t - [0] Timeout at collective: ALLREDUCE, #3\n"
        "\t - To our best knowledge, the lagging/dead/mismatched ranks that caused it are:\n"
        "\t   - [0, 2] joined but didn't finish collective #3 (count from 1)\n"
        "\t   - [1] finished collective #2, but didn't join collective #3 (count from 1)\n",
    )
    assert (desync[1].completed, desync[1].open) == (2, ())
    assert [call.seq for rank in (0, 2) for call in desync[rank].open] == [3, 3]
    barrier = by_rank(
        log,
        "[rank0]:[E1 10:00:00.0 ProcessGroupGloo.cpp:138] [Rank 0]: Ranks 1, 3 failed to "
        "pass monitoredBarrier in 5000 ms\n",
    )
    assert {rank for rank, f in barrier.items() if not f.open} == {1, 3}
    assert barrier[0].open[0].op == "monitored_barrier"


def test_a_log_advises_the_flight_recorder_and_names_its_dumps(log):
    facts = log.facts(
        "[rank0]:[E101 00:00:00.1] Stack trace of the failed collective not found, potentially "
        "because FlightRecorder is disabled.\n"
        "[rank0]:[I1] Finished writing Flight Recorder debug info to /tmp/fr/rank_0\n"
    )
    assert [fact.key for fact in of_kind(facts, Advice)] == [
        "flight-recorder", "flight-recorder-dump:/tmp/fr/rank_0",
    ]  # fmt: skip


def test_only_the_last_start_of_the_ranks_counts_and_all_that_wrote_are_the_world(log):
    again = "[INFO] [default] Worker group FAILED. 2/3 attempts left; will restart worker group\n"
    assert set(by_rank(log, lines(2, 2, 5) + again + lines(3, 3, 8))) == {3}
    text = "".join(f"[rank{rank}]: hello\n" for rank in range(4)) + lines(2, 2, 5)
    assert [fact.size for fact in of_kind(log.facts(text), World)] == [4]


@pytest.mark.needs("samples")
def test_the_samples_are_about_global_rank_9_and_a_job_without_timeouts(samples):
    path = samples / "watchdog_logs" / "nemo_rl_ray_prefixed_pg_rank_trap.log"
    found = [fact for fact in of_kind(facts_of(KIND, path), Progress) if fact.timed_out]
    assert {f.process.rank for f in found} == {9}
    assert {f.group.text: (f.open[0].seq, f.open_count) for f in found} == {
        "TENSOR_MODEL_PARALLEL_GROUP": (49387, 20),
        "EXPERT_MODEL_PARALLEL_GROUP": (52229, 30),
    }
    assert not KIND.sniff(item_of(samples / "megatron_logs" / "meg_gpt2_perf_n16.out"))
