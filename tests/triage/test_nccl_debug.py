"""NCCL_DEBUG=INFO: identities, how many calls each rank made, and failed connections."""

from oddrank.triage.evidence.nccl_debug import KIND
from oddrank.triage.facts import Counts, Identity, World
from oddrank.triage.judges import devices, ras
from oddrank.triage.view import view
from triage.facts_of import of_kind, reader
from triage.told import check

log = reader(KIND)


def init(rank, size=4, comm="0xabc", host="n1"):
    bus = f"{rank + 1:x}b000"
    return (
        f"{host}:{100 + rank}:{200 + rank} [{rank}] NCCL INFO comm 0x5{rank}00 rank {rank} "
        f"nranks {size} cudaDev {rank} nvmlDev {rank} busId {bus} commId {comm} - Init COMPLETE\n"
    )


def coll(rank, count, *, size=4):
    return (
        f"n1:{100 + rank}:{300 + rank} [{rank}] NCCL INFO AllReduce: opCount {count:x} "
        "sendbuff 0x7f recvbuff 0x7f count 64 datatype 7 op 0 root 0 "
        f"comm 0x5{rank}00 [nranks={size}] stream 0x55\n"
    )


def start(*ranks):
    return "".join(init(rank).replace("- Init COMPLETE", "- Init START") for rank in ranks)


def completion(host, status=12, peer="10.0.0.9"):
    return (
        f"{host}:100:200 [0] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer "
        f"{peer}<54862> with status={status} opcode=0 len=0 vendor err 129 (Recv)\n"
    )


JOB = "".join(init(rank) for rank in range(4))
COUNTED = [coll(rank, count) for rank in range(4) for count in range(0x28 - 3 * (rank == 2))]


def test_the_rank_behind_and_the_one_that_has_not_begun_are_told(log, golden):
    facts = log.facts(JOB + "".join(COUNTED))
    (counts,) = of_kind(facts, Counts)
    assert counts.counts == ((0, 0x28), (1, 0x28), (2, 0x25), (3, 0x28))  # as a maintainer saw
    assert counts.whole
    # Two communicators of two ranks each: rank 1 of both is not one rank.
    both = [init(rank, 2, f"0x{n}", f"n{n}") for n in (1, 2) for rank in (0, 1)]
    two = log.facts("".join([*both, coll(0, 5, size=2), coll(1, 4, size=2)]))
    assert of_kind(two, World) == []
    assert all(fact.process.rank is None for fact in of_kind(two, Identity))
    healthy = "".join(coll(rank, count) for count in range(9) for rank in range(4))
    check(golden, {
        "a rank behind": (facts, ("not-entered-or-inside", (2,), 0)),
        "ranks of groups of equal size": (two, ("not-entered-or-inside", (None,), 0)),
        "a healthy job": (log.facts(JOB + healthy),),
        "one has not begun to set up": (log.facts(start(0, 1, 3)),
                                        ("not-entered-or-inside", (2,), 0)),
        "a set-up that has ended": (log.facts(start(0, 1) + init(3)),),
        "a set-up that all have begun": (log.facts(start(0, 1, 2, 3)),),
    }, ras.judge)  # fmt: skip
    assert [p.pid for s in ras.judge(view(two)) for p in s.processes] == [101]


def test_the_peer_that_several_hosts_lost_is_told_not_those_that_complain(log, golden):
    bootstrap = "n9:109:209 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.9<0>\n"
    facts = log.facts(bootstrap + completion("n1") + completion("n2") + completion("n2"))
    more = log.facts(
        "n1:1:2 [0] NCCL WARN NET/IB : mlx5_0:1 Got async event : port error\n"
        "n1:1:2 [0] misc/ibvwrap.cc:376 NCCL WARN Call to ibv_modify_qp failed with 110 Connection "
        "timed out\n"
    )
    check(golden, {
        "a peer that hosts lost": (facts, ("device", (), 1)),
        "a port and a call": (more, ("device", (), 1), ("device", (), 1)),
    }, devices.judge)  # fmt: skip
