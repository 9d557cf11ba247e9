"""Faults of devices name a rank only if something ties them to it, and say how sure that is."""

import pytest

from oddrank.triage import verdict
from oddrank.triage.facts import Counts, Death, Identity, Process, Source, Trouble, ranks
from oddrank.triage.findings import finding
from oddrank.triage.judges import devices
from oddrank.triage.view import view
from progress import done, inside

HERE = Source("dmesg")
STALL = 1_700_000_000.0


def who(rank, host="n1"):
    return Identity(Process(rank, host, 100 + rank), HERE, f"0000:{rank}b:00", rank)


def stalled(time=STALL):
    return Counts("c", "", (), HERE, time)


def xid(code="79", device="GPU 0000:3b:00", **more):
    told = {"host": "n1", "fatal": True, "time": STALL - 60, **more}
    return Trouble(
        "xid", f"Xid {code}: it fell off the bus", HERE, device=device, code=code, **told
    )


def judged(*facts):
    return [(ranks(s.processes), s.certainty) for s in devices.judge(view(facts))]


JOB = tuple(who(rank) for rank in range(4))
TWO_HOSTS = (*JOB, *(who(rank, "n2") for rank in range(4, 8)))


def test_a_fatal_xid_near_the_stall_names_the_rank_of_that_gpu():
    assert judged(*JOB, stalled(), xid()) == [((3,), 2)]


def test_without_a_time_it_is_medium():
    assert judged(*JOB, xid(time=None)) == [((3,), 1)]
    assert judged(*JOB, stalled(), xid(time=None)) == [((3,), 1)]


def test_a_fault_days_before_is_low_and_says_so():
    (suspect,) = devices.judge(view((*JOB, stalled(), xid(time=STALL - 5 * 86400))))
    assert suspect.certainty == 0
    assert "5 days away from the stall" in suspect.against[0].text


def test_a_time_of_an_unknown_zone_may_be_hours_off():
    assert judged(*JOB, stalled(), xid(time=STALL - 8 * 3600, coarse=True)) == [((3,), 2)]
    assert judged(*JOB, stalled(), xid(time=STALL - 8 * 3600)) == [((3,), 1)]


def test_the_same_gpu_of_another_host_is_not_its_own():
    same = Identity(Process(7, "n2", 107), HERE, "0000:3b:00", 3)
    assert judged(*JOB, same, stalled(), xid(host="n2.cluster.lan")) == [((7,), 2)]
    assert judged(*JOB, same, stalled(), xid(host=None)) == [((), 1)]


def test_the_host_may_stand_in_the_name_of_the_file():
    same = Identity(Process(7, "n2", 107), HERE, "0000:3b:00", 3)
    trouble = xid(host=None)
    for name in ("logs/n2/dmesg.txt", "dmesg-n2.log", "job.tar:out/n2_dmesg"):
        told = Trouble(**{**{f: getattr(trouble, f) for f in trouble.__slots__},
                          "source": Source(name)})  # fmt: skip
        assert judged(*JOB, same, stalled(), told) == [((7,), 2)], name


def test_a_pid_ties_it_where_the_gpu_is_not_known():
    plain = [Identity(Process(r, "n1", 100 + r), HERE) for r in range(4)]
    assert judged(*plain, stalled(), xid(pids=(9999, 102), pid=9999)) == [((2,), 2)]


def test_a_host_known_by_its_address_may_be_the_one_of_the_log():
    plain = [Identity(Process(r, "10.0.0.1", 100 + r), HERE) for r in range(4)]
    assert judged(*plain, stalled(), xid(pids=(102,), pid=102)) == [((2,), 2)]
    named = Identity(Process(2, "n1", 102), HERE)
    (suspect,) = devices.judge(view((named, *plain, stalled(), xid(pids=(102,), pid=102))))
    assert suspect.processes == (Process(2, "n1", 102),)


def test_a_gpu_that_nothing_ties_to_a_rank_names_nobody():
    (suspect,) = devices.judge(view((xid(),)))
    assert (suspect.processes, suspect.certainty) == ((), 1)
    plain = [Identity(Process(r, "n1", 100 + r), HERE) for r in range(4)]
    assert judged(*plain, stalled(), xid()) == [((), 1)]


@pytest.mark.parametrize("whose", ["application", "cleanup", "notice"])
def test_what_a_crash_leaves_behind_is_no_suspect(whose):
    assert judged(*JOB, stalled(), xid("31", whose=whose)) == []


def test_an_error_of_a_program_alone_is_said_not_to_be_the_gpus():
    hit = xid("31", whose="application", pid=4711, pids=(4711,))
    (suspect,) = devices.judge(view((hit, xid("43", whose="cleanup", pid=4711, pids=(4711,)))))
    assert (suspect.cause, suspect.certainty) == ("application", 1)
    assert [p.pid for p in suspect.processes] == [4711]
    what = finding(suspect).what
    assert what.endswith("an error of the program of pid 4711 (n1), not of the GPU")
    (unknown,) = devices.judge(view((xid("31", whose="application"),)))
    assert (unknown.processes, unknown.certainty) == ((), 0)
    assert finding(unknown).what.endswith("an error of a program, not of the GPU")
    (tied,) = devices.judge(view((*JOB, xid("13", whose="application"))))
    assert (ranks(tied.processes), tied.certainty) == ((3,), 1)
    # Next to a fault of hardware it is a consequence.
    assert [s.cause for s in devices.judge(view((hit, xid())))] == ["device"]


def test_what_other_judges_take_is_left_to_them():
    oom = Trouble("oom", "out of memory", HERE, "n1", pid=101, pids=(101,))
    assert judged(*JOB, oom) == []


def test_many_flaps_are_medium_and_one_is_low():
    def flaps(count):
        return Trouble("ib-flap", "it lost its link", HERE, "n2", "ib6", count=count, time=STALL)

    assert judged(*TWO_HOSTS, stalled(), flaps(6)) == [((4, 5, 6, 7), 1)]
    assert judged(*TWO_HOSTS, stalled(), flaps(1)) == [((4, 5, 6, 7), 0)]
    assert judged(flaps(6)) == [((), 1)]


def test_a_boot_counts_only_near_the_stall():
    def boot(time):
        return Trouble("boot", "it booted", HERE, "n1", fatal=True, time=time)

    assert judged(*JOB, stalled(), boot(STALL + 60)) == [((0, 1, 2, 3), 1)]
    assert judged(*JOB, stalled(), boot(STALL - 9000)) == [((0, 1, 2, 3), 0)]
    assert judged(*JOB, boot(STALL)) == [((0, 1, 2, 3), 0)]


def test_a_file_system_names_no_rank():
    nfs = Trouble("file-system", "it does not respond, and did not come back in this log", HERE,
                  "n1", "NFS server fs1", time=STALL)  # fmt: skip
    assert judged(*JOB, stalled(), nfs) == [((), 1)]


def test_faults_of_one_rank_are_one_suspect_with_the_worst_first():
    ecc = Trouble("xid", "Xid 92: many errors", HERE, "n1", "GPU 0000:3b:00", "92", time=STALL)
    (suspect,) = devices.judge(view((*JOB, stalled(), ecc, xid())))
    assert [t.code for t in suspect.trouble] == ["79", "92"]
    assert len(suspect.support) == 2


def test_a_count_and_its_span_are_told():
    death = Death(Process(1), "exit", HERE, time=STALL)
    five = xid("119", count=5, time=STALL - 400, last=STALL - 45)
    (suspect,) = devices.judge(view((*JOB, death, five)))
    assert "GPU 0000:3b:00 of n1: Xid 119" in suspect.support[0].text
    assert suspect.support[0].text.endswith("5 times in 6 min")


def test_a_broken_gpu_says_why_its_rank_did_not_come():
    waiting = [inside(rank, 7) for rank in (0, 1, 2)]
    behind = done(3, 6)
    plain = verdict.suspects(view((*waiting, behind, *JOB)))[0]
    assert plain.cause in ("not-entered", "not-entered-or-inside")
    (found,) = verdict.suspects(view((*waiting, behind, *JOB, xid(time=None))))
    assert (found.cause, ranks(found.processes), ranks(found.waiting)) == (
        "device",
        (3,),
        (0, 1, 2),
    )
    assert "Xid 79" in finding(found).what
    assert "ranks 0-2 wait for it in all_reduce 7" in finding(found).what


def test_a_flap_of_its_host_does_not_say_why():
    flap = Trouble("ib-flap", "it lost its link", HERE, "n1", "ib6", count=6, time=None)
    facts = [inside(rank, 7) for rank in (0, 1, 2)] + [done(3, 6), *JOB, flap]
    assert verdict.suspects(view(facts))[0].cause != "device"


def test_a_device_with_an_odd_digit_ties_nothing():
    assert judged(*JOB, stalled(), xid(device="GPU \N{SUPERSCRIPT TWO}")) == [((), 1)]
