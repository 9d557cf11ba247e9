"""NCCL_DEBUG=INFO: identities, the calls of each rank side by side, and failed connections."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oddrank.triage.evidence import Item, Notes
from oddrank.triage.evidence.nccl_debug import KIND
from oddrank.triage.facts import Counts, Identity, Mismatch, Process, Trouble, World, ranks
from oddrank.triage.findings import finding
from oddrank.triage.judges import devices, ras
from oddrank.triage.view import view
from triage.facts_of import Texts, item_of


@pytest.fixture
def log(tmp_path):
    return Texts(tmp_path, KIND)


def of_kind(facts, kind):
    return [fact for fact in facts if isinstance(fact, kind)]


def init(rank, size=4, comm="0xabc", host="n1", prefix=""):
    bus = f"{rank + 1:x}b000"
    return (
        f"{prefix}{host}:{100 + rank}:{200 + rank} [{rank}] NCCL INFO comm 0x5{rank}00 rank {rank} "
        f"nranks {size} cudaDev {rank} nvmlDev {rank} busId {bus} commId {comm} - Init COMPLETE\n"
    )


def coll(rank, count, *, op="AllReduce", elements=64, root=0, dtype=7, size=4, prefix=""):
    return (
        f"{prefix}n1:{100 + rank}:{300 + rank} [{rank}] NCCL INFO {op}: opCount {count:x} "
        f"sendbuff 0x7f recvbuff 0x7f count {elements} datatype {dtype} op 0 root {root} "
        f"comm 0x5{rank}00 [nranks={size}] stream 0x55\n"
    )


JOB = "".join(init(rank) for rank in range(4))


def test_init_lines_say_who_is_who(log):
    facts = log.facts(JOB)
    assert [f.size for f in of_kind(facts, World)] == [4]
    two = of_kind(facts, Identity)[2]
    assert (two.process, two.gpu, two.gpu_index) == (Process(2, "n1", 102), "0000:3b:00", 2)


def test_the_rank_behind_is_found_as_a_maintainer_did_by_hand(log):
    lines = [coll(rank, count) for rank in range(4) for count in range(0x28 - 3 * (rank == 2))]
    facts = log.facts(JOB + "".join(lines))
    (counts,) = of_kind(facts, Counts)
    assert counts.counts == ((0, 0x28), (1, 0x28), (2, 0x25), (3, 0x28))
    assert counts.whole
    (suspect,) = ras.judge(view(facts))
    assert (suspect.cause, ranks(suspect.processes)) == ("not-entered-or-inside", (2,))
    assert suspect.certainty == 0


def test_different_calls_at_one_count_are_a_mismatch(log):
    lines = [coll(rank, count) for rank in range(4) for count in range(5)]
    lines += [coll(rank, 5) for rank in (0, 1, 3)] + [coll(2, 5, op="AllGather", dtype=0)]
    (found,) = of_kind(log.facts(JOB + "".join(lines)), Mismatch)
    assert (found.seq, found.differs) == (6, "op")
    assert [(v.call.op, v.ranks) for v in found.variants] == [
        ("all_reduce", (0, 1, 3)), ("all_gather", (2,)),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("other", "differs"),
    [({"elements": 65}, "sizes"), ({"dtype": 9}, "dtype"), ({"root": 1}, "root")],
)
def test_what_differs_is_told(log, other, differs):
    lines = [coll(rank, 0, op="Broadcast") for rank in (0, 1, 2)]
    lines.append(coll(3, 0, op="Broadcast", **other))
    (found,) = of_kind(log.facts(JOB + "".join(lines)), Mismatch)
    assert (found.differs, found.variants[1].ranks) == (differs, (3,))


def test_files_of_each_process_are_read_together_and_prefixes_are_no_matter(log):
    prefix = "(RayTrainWorker pid=615, ip=10.72.7.6) "
    facts = log.facts(*(init(r, prefix=prefix) + coll(r, 7 + (r == 1), prefix=prefix)
                        for r in range(4)))  # fmt: skip
    (counts,) = of_kind(facts, Counts)
    assert dict(counts.counts) == {0: 8, 1: 9, 2: 8, 3: 8}


def test_a_healthy_job_has_no_suspect(log):
    lines = [coll(rank, count) for count in range(9) for rank in range(4)]
    assert ras.judge(view(log.facts(JOB + "".join(lines)))) == []


def test_sends_and_receives_are_not_counted(log):
    lines = [coll(0, count, op="Send") for count in range(9)] + [coll(1, 0, op="Recv")]
    assert of_kind(log.facts(JOB + "".join(lines)), Counts) == []


def test_ranks_of_groups_of_equal_size_are_not_mixed(log):
    """Two communicators of two ranks each: rank 1 of both is not one rank."""
    lines = [init(0, 2, "0x1", "n1"), init(1, 2, "0x1", "n1"), init(0, 2, "0x2", "n2"),
             init(1, 2, "0x2", "n2")]  # fmt: skip
    lines += [coll(0, 5, size=2), coll(1, 4, size=2)]
    facts = log.facts("".join(lines))
    assert of_kind(facts, World) == []
    assert all(fact.process.rank is None for fact in of_kind(facts, Identity))
    (suspect,) = ras.judge(view(facts))
    assert suspect.processes == (Process(None, "n1", 101),)


def start(rank, size=4):
    return init(rank, size).replace("- Init COMPLETE", "- Init START")


def test_who_has_not_begun_to_set_up_is_told_with_low_confidence(log):
    facts = log.facts("".join(start(rank) for rank in (0, 1, 3)))
    (suspect,) = ras.judge(view(facts))
    assert (suspect.rule, suspect.certainty) == ("init-not-begun", 0)
    assert "rank 2 printed no line of it" in finding(suspect).what


def test_a_set_up_that_has_ended_or_that_all_have_begun_names_nobody(log):
    assert ras.judge(view(log.facts(start(0) + start(1) + init(3)))) == []
    assert ras.judge(view(log.facts("".join(start(rank) for rank in range(4))))) == []


def completion(host, status=12, peer="10.0.0.9"):
    return (
        f"{host}:100:200 [0] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer "
        f"{peer}<54862> with status={status} opcode=0 len=0 vendor err 129 (Recv)\n"
    )


def test_the_peer_that_several_hosts_lost_is_told_not_those_that_complain(log):
    bootstrap = "n9:109:209 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.9<0>\n"
    facts = log.facts(bootstrap + completion("n1") + completion("n2") + completion("n2"))
    (trouble,) = of_kind(facts, Trouble)
    assert (trouble.kind, trouble.host, trouble.count, trouble.fatal) == ("network", "n9", 3, True)
    assert "3 connections of 2 hosts to it failed" in trouble.text
    (suspect,) = devices.judge(view(facts))
    assert (suspect.processes, suspect.certainty) == ((), 1)


def test_flushed_work_is_a_consequence(log):
    (trouble,) = of_kind(log.facts(completion("n1", status=5)), Trouble)
    assert trouble.whose == "cleanup"


def test_events_of_ports_and_failed_calls_are_troubles(log):
    facts = log.facts(
        "n1:1:2 [0] NCCL WARN NET/IB : mlx5_0:1 Got async event : port error\n"
        "n1:1:2 [0] misc/ibvwrap.cc:376 NCCL WARN Call to ibv_modify_qp failed with 110 Connection "
        "timed out\n"
    )
    assert [(f.kind, f.device) for f in of_kind(facts, Trouble)] == [
        ("ib-flap", "mlx5_0"), ("network", None),
    ]  # fmt: skip


PIECES = [
    init(1),
    coll(1, 1),
    completion("n"),
    "\n",
    "opCount ",
    "comm 0x5",
    "9" * 30,
    "- Init COMPLETE",
]


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=9), max_size=20))
def test_garbage_never_raises(tmp_path_factory, pieces):
    path = tmp_path_factory.mktemp("garbage") / "log"
    content = "".join(piece[: len(piece) - n % 3] for n, piece in enumerate(pieces)).encode(
        errors="replace"
    )
    path.write_bytes(content)
    item = Item("log", path, len(content), content)
    KIND.sniff(item)
    ras.judge(view(KIND.read([item], Notes())))


def test_a_log_that_only_has_some_of_the_words_is_not_of_this_kind(tmp_path):
    path = tmp_path / "train.log"
    path.write_text("the opCount grows; Call to ibv_poll failed\n")
    assert not KIND.sniff(item_of(path))
