"""Faults of devices name a rank only if something ties them to it, and say how sure that is."""

from dataclasses import replace

from oddrank.triage import findings, verdict
from oddrank.triage.facts import Counts, Death, Identity, Process, Source, State, Trouble
from oddrank.triage.judges import devices
from oddrank.triage.view import view
from progress import done
from triage.told import check, into

HERE = Source("dmesg")
STALL = 1_700_000_000.0
HOUR = 3600.0
STALLED = Counts("c", "", (), HERE, STALL)


def who(rank, host="n1"):
    return Identity(Process(rank, host, 100 + rank), HERE, f"0000:{rank}b:00", rank)


def xid(code="79", device="GPU 0000:3b:00", **more):
    told = {"host": "n1", "fatal": True, "time": STALL - 60, **more}
    return Trouble(
        "xid", f"Xid {code}: it fell off the bus", HERE, device=device, code=code, **told
    )


def of(kind, text, host="n1", device=None, **more):
    return Trouble(kind, text, HERE, host, device, **{"time": STALL, **more})


def flaps(count, **more):
    return of("ib-flap", "it lost its link", "n2", "ib6", count=count, **more)


def boot(time):
    return of("boot", "it booted", fatal=True, time=time)


JOB = tuple(who(rank) for rank in range(4))
TWO_HOSTS = (*JOB, *(who(rank, "n2") for rank in range(4, 8)))
PLAIN = [Identity(Process(r, "n1", 100 + r), HERE) for r in range(4)]
BY_ADDRESS = [Identity(Process(r, "10.0.0.1", 100 + r), HERE) for r in range(4)]
SAME = Identity(Process(7, "n2", 107), HERE, "0000:3b:00", 3)
BY_PID = xid(pids=(102,))
RANK_3, NOBODY = ("device", (3,), 2), ("device", (), 1)


def of_program(code="31", **more):
    return xid(code, whose="application", **more)


def test_what_ties_a_fault_to_ranks_and_how_near_it_is(golden):
    ecc = of("xid", "Xid 92: many errors", device="GPU 0000:3b:00", code="92")
    nfs = of("file-system", "it does not respond, and did not come back in this log",
             device="NFS server fs1")  # fmt: skip
    five = xid("119", count=5, time=STALL - 400, last=STALL - 45)
    death = Death(Process(1), "exit", HERE, time=STALL)
    hit = of_program(pids=(4711,))
    after = xid("43", whose="cleanup", pids=(4711,))
    oom = of("oom", "out of memory", pids=(101,))
    rows = {
        "fatal near the stall": ([*JOB, STALLED, xid()], RANK_3),
        "without a time": ([*JOB, STALLED, xid(time=None)], ("device", (3,), 1)),
        "without a time of the stall": ([*JOB, xid(time=None)], ("device", (3,), 1)),
        "days before": ([*JOB, STALLED, xid(time=STALL - 5 * 24 * HOUR)], ("device", (3,), 0)),
        "days before, and again near it":
            ([*JOB, STALLED, replace(xid(time=STALL - 5 * 24 * HOUR), last=STALL - 60)], RANK_3),
        "hours before in an unknown zone":
            ([*JOB, STALLED, xid(time=STALL - 8 * HOUR, coarse=True)], RANK_3),
        "hours before": ([*JOB, STALLED, xid(time=STALL - 8 * HOUR)], ("device", (3,), 1)),
        "the same gpu of another host":
            ([*JOB, SAME, STALLED, xid(host="n2.cluster.lan")], ("device", (7,), 2)),
        "the same gpu of no known host": ([*JOB, SAME, STALLED, xid(host=None)], NOBODY),
        "a pid where the gpu is not known":
            ([*PLAIN, STALLED, xid(pids=(9999, 102))], ("device", (2,), 2)),
        "a host known by its address": ([*BY_ADDRESS, STALLED, BY_PID], ("device", (2,), 2)),
        "a host known by both":
            ([Identity(Process(2, "n1", 102), HERE), *BY_ADDRESS, STALLED, BY_PID],
             ("device", (2,), 2)),
        "nothing at all": ([xid()], NOBODY),
        "nothing but the host": ([*PLAIN, STALLED, xid()], NOBODY),
        "a device with an odd digit":
            ([*JOB, STALLED, xid(device="GPU \N{SUPERSCRIPT TWO}")], NOBODY),
        "a program's error alone": ([hit, after], ("application", (None,), 1)),
        "of no known program": ([of_program()], ("application", (), 0)),
        "of a rank's program": ([*JOB, of_program("13")], ("application", (3,), 1)),
        "a program's error next to a fault of hardware": ([hit, xid()], NOBODY),
        "an error that other judges take": ([*JOB, oom],),
        "many flaps": ([*TWO_HOSTS, STALLED, flaps(6)], ("device", (4, 5, 6, 7), 1)),
        "one flap": ([*TWO_HOSTS, STALLED, flaps(1)], ("device", (4, 5, 6, 7), 0)),
        "flaps without ranks": ([flaps(6)], NOBODY),
        "a boot near the stall":
            ([*JOB, STALLED, boot(STALL + 60)], ("device", (0, 1, 2, 3), 1)),
        "a boot hours before it":
            ([*JOB, STALLED, boot(STALL - 2.5 * HOUR)], ("device", (0, 1, 2, 3), 0)),
        "a boot without a stall": ([*JOB, boot(STALL)], ("device", (0, 1, 2, 3), 0)),
        "a file system": ([*JOB, STALLED, nfs], NOBODY),
        "the worst of two first": ([*JOB, STALLED, ecc, xid()], RANK_3),
        "several times": ([*JOB, death, five], RANK_3),
    }  # fmt: skip
    for name in ("logs/n2/dmesg.txt", "dmesg-n2.log", "job.tar:out/n2_dmesg"):
        named = replace(xid(host=None), source=Source(name))
        rows[f"of the host of {name}"] = [*JOB, SAME, STALLED, named], ("device", (7,), 2)
    for whose in ("application", "cleanup", "notice"):
        rows[f"{whose} behind a stall"] = ([*JOB, STALLED, xid("31", whose=whose)],)
    check(golden, rows, devices.judge)
    for fault, named in (
        (xid(), "gpu n1, 0000:3b:00"), (xid(device=None), "node n1"),
        (of("pcie", "an error", device="GPU 0000:3b:00"), "gpu n1, 0000:3b:00"),
        (of("pcie", "an error", device="PCIe port 0000:00:01"), "node n1, PCIe port 0000:00:01"),
        (flaps(6), "link n2, ib6"),
    ):  # fmt: skip
        (suspect,) = devices.judge(view([fault]))
        assert str(findings.finding(suspect).who) == named


def test_a_broken_gpu_says_why_its_rank_did_not_come(golden):
    stuck = [*into(7, 0, 1, 2), done(3, 6), *JOB]
    flap = replace(flaps(6, time=None), host="n1")
    check(golden, {
        "no fault": (stuck, ("not-entered", (3,), 2)),
        "a fault of its gpu": ([*stuck, xid(time=None)], ("device", (3,), 2)),
        "a flap of its host": ([*stuck, flap], ("not-entered", (3,), 2)),
    }, verdict.suspects)  # fmt: skip


def test_ranks_that_were_started_otherwise_than_most_explain_all_else(golden):
    def job(*sizes):
        return [replace(who(rank), world=size) for rank, size in enumerate(sizes)]

    again = Identity(Process(3, "n1", 900), HERE, world=4)
    check(golden, {
        "another size than most": ([*job(4, 4, 5, 4), *into(1, 0, 1)], ("settings", (2,), 2)),
        "one against one": (job(2, 3), ("settings", (), 0)),
        "a rank of a size that most do not know": (job(4, 4, 4, 4, 5), ("settings", (4,), 2)),
        "a rank twice": ([*job(4, 4), again, *job(0, 0, 0, 4)[3:]], ("settings", (3,), 2)),
        "and nobody knows which is missing": ([again, *job(0, 0, 0, 4)[3:]], ("settings", (3,), 2)),
        "one of the two has ended":
            ([*job(4, 4), again, *job(0, 0, 0, 4)[3:], State(again.process, "dead", HERE),
              *into(1, 0, 1, 3), done(2, 0)], ("not-entered", (2,), 2)),
        "a size beyond all bounds": (job(2**40, 2**40),),
        "all alike": ([*job(2, 2), *into(1, 0), done(1, 0)], ("not-entered", (1,), 1)),
    })  # fmt: skip
