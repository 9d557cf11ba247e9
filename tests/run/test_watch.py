"""`oddrank run` on real jobs: it names the rank to blame, and no other; it disturbs nothing."""

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from launchers import LAUNCHERS
from netns import two_hosts
from patience import until
from processes import Marked, captured
from prometheus_text import read
from run.watched_job import LONGEST, named, watched_job

pytestmark = [pytest.mark.job, pytest.mark.needs("torch-build"), pytest.mark.timeout(600)]


OTHER = {"env": (), "mpirun": pytest.mark.needs("mpi"), "hydra": pytest.mark.needs("hydra")}
WATCHES_ITSELF = {"program": (), "options": (), "environ": {"ARM": "report"}}


@pytest.mark.parametrize(
    ("fault", "cause", "place", "how"),
    [
        pytest.param("lock", "host-stuck", "waits_for_a_lock", {}, id="lock"),
        pytest.param("event", "host-stuck", "waits_for_an_event", {}, id="event"),
        pytest.param("stop", "host-stopped", "stopped", {}, id="stop"),
        pytest.param("event", "host-stuck", "waits_for_an_event", WATCHES_ITSELF, id="itself"),
        *(
            pytest.param("event", "host-stuck", "", {"launcher": name}, id=name, marks=marks)
            for name, marks in OTHER.items()
        ),
    ],
)
def test_a_rank_that_others_wait_for_is_named(fault, cause, place, how):
    with watched_job(fault, rank=2, **how) as job:
        report = job.waits_for("stall")
        assert named(report) == ([2], cause)
        assert report["tool"] == "run"
        assert report["world"]["size"] == 4
        (line,) = until(lambda: job.said, what="the sentence")  # launchers pass it on
        assert line == f"oddrank: {report['summary']}"
        assert "rank 2" in line
        assert place in job.output
        assert None in job.codes  # nothing was ended
        job.signal(1, signal.SIGKILL)
        job.waits_for("death")


@pytest.mark.parametrize(
    ("fault", "says"),
    [("kill", "SIGKILL"), ("raise", "ValueError"), ("exit", "3")],
)
def test_a_rank_that_died_first_is_named_and_the_others_follow_from_it(fault, says):
    with watched_job(fault, rank=1) as job:
        assert job.ends() != [0]
        report = job.report
        assert named(report) == ([1], "dead")
        assert says in report["summary"]
        assert [e["event"] for e in job.history] == ["death", "end"]
        cascade = report["data"]["run"]["cascade"]
        assert len(cascade) == 3
        # Others may end sooner than a rank that shuts torch down first.
        # Guards tell of them in any order.
        assert fault != "kill" or sorted(cascade) == [0, 2, 3]
        # At once, and as the last line: torchrun's own report is between.
        assert job.said == [f"oddrank: {report['summary']}"] * 2
        assert job.errors.endswith(f"{job.said[1]}\n")


@pytest.mark.parametrize("without", [(), ("RANK", "LOCAL_RANK")], ids=["in it", "by it"])
def test_a_rank_that_died_is_named_where_each_has_a_shell_for_its_only_parent(without):
    def shells(order):
        for node, line, own in LAUNCHERS["env"](order):
            sets = "".join(f"{name}={own[name]} " for name in without)
            shell = ["sh", "-c", f'{sets}"$0" "$@"; exit $?', *line]
            yield node, shell, {name: text for name, text in own.items() if name not in without}

    with watched_job("kill", rank=1, ranks=3, launcher=shells) as job:
        report = job.waits_for("death")
        assert named(report) == ([1], "dead")
        assert re.search(r"killed with SIGKILL at .*\(training.py:\d+\)", report["summary"])
        assert 0 not in job.ends()
        assert sorted(job.report["data"]["heard"]) == [0, 1, 2]


PROGRAMS = {"LAUNCHES": ""}


def spawned(**how):
    """Watches a script that starts its ranks itself."""
    how = {"on_stall": "kill", "fresh": "LAUNCHES" in how.get("environ", ()), **how}
    script = Path(__file__).with_name("spawning.py")
    return watched_job(rank=1, ranks=1, launcher="env", script=script, **how)


WAITS = ("host-stuck", "is stuck: waits for another thread in waits_for_a_licence (spawning.py:")
RAISED = ("dead", "raised ValueError: bad shard 7, at reads_a_shard (spawning.py:")
KILLED = ("dead", "was killed with SIGKILL at dies")
# How the script starts its ranks, the cause that is named, and the sentence.
SPAWNED = {
    "it is watched": ({}, *WAITS),
    "its ranks watch themselves":
        ({"program": (), "options": (), "environ": {"ARM": "kill"}}, *WAITS),
    "others came before those": ({"environ": {"TWICE": ""}}, *WAITS),
    "one of its ranks raises": ({"environ": {"DOES": "raises"}, "on_stall": "report"}, *RAISED),
    "one of its ranks is killed":
        ({"environ": {"DOES": "is_killed"}, "on_stall": "report"}, *KILLED),
    "programs, one of which waits": ({"environ": PROGRAMS | {"DOES": "waits"}}, *WAITS),
    "programs, one of which raises": ({"environ": PROGRAMS | {"DOES": "raises"}}, *RAISED),
    "programs, one of which is killed":
        ({"environ": PROGRAMS | {"DOES": "is_killed"}}, *KILLED),
}  # fmt: skip


@pytest.mark.parametrize("how", SPAWNED)
def test_ranks_that_the_script_starts_itself_are_watched_and_ended_with_it(how):
    if how == "one of its ranks raises" and sys.version_info >= (3, 13):
        pytest.skip("multiprocessing tells nobody")
    options, cause, said = SPAWNED[how]
    with spawned(**options) as job:
        assert job.ends() != [0]  # no process is left
        assert named(job.report) == ([1], cause), job.output[-5000:]
        assert said in job.report["summary"]
        assert "TWICE" not in options.get("environ", ()) or job.report["data"]["heard"] == [0, 1, 2]
        assert job.report["data"]["run"]["killed"] == (cause == "host-stuck")
        assert job.said


def test_a_program_that_works_on_while_the_others_wait_is_left_alone():
    with spawned(steps=20, stall=2, environ=PROGRAMS | {"DOES": "works"}) as job:
        assert job.ends() == [0], job.output[-5000:]
        assert job.said == []


@pytest.mark.parametrize(
    ("fault", "rank", "on_stall", "cause"),
    [("kill", 0, "collect", "dead"), ("event", 2, "kill", "host-stuck")],
)
def test_the_evidence_of_a_job_is_collected_before_it_ends(fault, rank, on_stall, cause):
    with watched_job(fault, rank=rank, on_stall=on_stall) as job:
        assert job.ends() == [1]
        assert named(job.report) == named(job.triaged()) == ([rank], cause)
        run = job.report["data"]["run"]
        assert run["killed"] == (on_stall == "kill")
        assert on_stall != "kill" or sorted(run["cascade"]) == [0, 1, 2, 3]
        assert job.report["data"]["decision"]["action"] == "same-nodes"
        assert len(job.said) == 3 + run["killed"]  # the verdict twice, the evidence, the end


def test_the_example_that_hangs_is_named_and_ended(tmp_path):
    mark, records = Marked(), tmp_path / "records"
    example = Path(__file__).parents[2] / "examples" / "hang_demo.py"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    run = ["-m", "oddrank", "run", "--stall", "3s", "--on-stall", "kill", str(example)]
    done = captured(
        [*torchrun, "--nproc-per-node", "4", *run], cwd=tmp_path, limit=LONGEST, **mark.environ,
        OMP_NUM_THREADS="1", ODDRANK_DIR=str(records),
    )  # fmt: skip
    try:
        assert done.returncode == 1
        assert re.search(
            r"^oddrank: rank 2 \(.*\) is stuck: waits for a lock in write_metrics"
            r" \(hang_demo.py:\d+\); ranks 0-1, 3 wait for it in all_reduce 6",
            done.stderr, re.MULTILINE,
        ), done.stderr  # fmt: skip
        ask = [sys.executable, "-m", "oddrank", "triage", "oddrank-collected"]
        triage = captured(ask, cwd=tmp_path, limit=LONGEST)
        assert triage.returncode == 1, triage.stderr + done.stderr
        assert triage.stdout.splitlines()[1].startswith("rank 2 (")
        assert "is stuck: waits for a lock in write_metrics (hang_demo.py:" in triage.stdout
        until(lambda: not mark.living(), normal=LONGEST)
    finally:
        mark.kill_all()


def test_a_job_that_is_told_to_end_has_nobody_to_blame():
    with watched_job() as job:
        guards_and_judge(job)
        job.launchers[0].send_signal(signal.SIGTERM)
        assert job.ends() != [0]
        assert job.said == []


def test_a_rank_that_runs_for_ever_is_named_only_after_ten_times_as_long():
    with watched_job("loop", rank=3, stall=1) as job:
        report = job.waits_for("stall")
        assert named(report)[0] == [3]
        (stall,) = job.history
        assert stall["seconds"] >= 10


def test_a_pause_in_which_a_rank_works_names_nobody():
    with watched_job("work", rank=0, steps=60, stall=2) as job:
        assert job.ends() == [0]
        assert job.said == []
        assert [e["event"] for e in job.history] == ["end"]
        assert job.report["verdict"] == "healthy"


def test_a_job_that_went_on_is_said_to_have_gone_on():
    with watched_job("stop", rank=1, steps=60) as job:
        job.waits_for("stall")
        job.signal(1, signal.SIGCONT)
        assert job.ends() == [0]
        assert [e["event"] for e in job.history] == ["stall", "went-on", "end"]
        assert re.fullmatch(r"oddrank: went on after \d+ s", job.said[-1])
        assert job.report["verdict"] == "healthy"


def test_a_job_that_went_on_and_stands_again_is_told_so_with_the_rank():
    with watched_job("stop", rank=1) as job:
        job.waits_for("stall")
        job.signal(1, signal.SIGCONT)
        job.waits_for("went-on")
        job.signal(1, signal.SIGSTOP)
        until(lambda: len(job.history) > 2, normal=LONGEST)
        assert [e["event"] for e in job.history] == ["stall", "went-on", "stall"]
        again = r"oddrank: went on after \d+ s, and stands again since [\d:]+ UTC: rank 1 .*"
        assert re.fullmatch(again, job.said[-1])
        assert named(job.report) == ([1], "host-stopped")


def test_a_healthy_job_looks_as_without_oddrank():
    def looks(**how):
        with watched_job(steps=60, **how) as job:
            codes = job.ends()
            assert not [*job.folder.glob("records/*/root-*")]  # the judge's address
            lines = job.output.replace(str(job.folder), "FOLDER").splitlines()
            return codes, sorted(lines), job.report

    plain = looks(program=(), options=())
    watched = looks(report_every=1)
    assert watched[:2] == plain[:2]
    assert watched[2]["verdict"] == "healthy"
    assert looks(options=("--no-watch",)) == plain


def test_ranks_that_came_late_stay_in_the_report_of_a_job_that_is_told_to_end():
    options = ("--json", "report.json", "--report-every", "1")
    with watched_job("late", rank=2, steps=10_000, options=options) as job:
        job.waits_for("late")
        job.launchers[0].send_signal(signal.SIGHUP)
        assert 0 not in job.ends()
        late, ended = job.report["findings"]
        assert (late["who"]["ranks"], late["cause"]) == ([2], "late-arrival")
        assert "(SIGHUP): nobody is to blame" in ended["what"]


@pytest.mark.parametrize("environ", [{}, {"DEVICE": "1"}], ids=["host", "device"])
def test_a_rank_that_stays_late_is_named_once_and_the_report_keeps_it(environ):
    options = (*["--json", "report.json", "--report-every", "1", "--prometheus", "job.prom"],)
    with watched_job("late", rank=2, steps=150, options=options, environ=environ) as job:
        gauges = job.folder / "job.prom"
        until(gauges.exists)  # nothing has happened yet
        job.waits_for("late")
        until(lambda: "late_seconds" in gauges.read_text())
        late = read(gauges.read_text())["oddrank_run_rank_late_seconds"]
        ((labels, seconds),) = late.samples.items()
        assert (dict(labels)["rank"], seconds > 0) == ("2", True)
        assert job.ends() == [0]
        report = job.report
        assert named(report) == ([2], "late-arrival")
        assert report["findings"][0]["condition"] == "late"
        clocks = "times that its device was in the calls" if environ else "wall clocks"
        assert clocks in [each["source"] for each in report["findings"][0]["evidence"]]
        assert [e["event"] for e in job.history] == ["late", "end"]
        assert job.said == [f"oddrank: {report['summary']}"]
        assert re.search(r"rank 2 .* all_reduces of default_pg \(ranks 0-3\)$", report["summary"])
        assert report["data"]["decision"]["action"] == "same-nodes"


def test_a_restart_of_the_ranks_is_watched_anew():
    # Before the process group: gloo's ranks can't find each other anew in torchrun's store.
    restarts = ("--max-restarts", "1")
    with watched_job("early", rank=1, of_launcher=restarts, on_stall="collect") as job:
        assert job.ends() == [1]
        assert len(list((job.folder / "oddrank-collected").iterdir())) == 2  # one of each attempt
        assert job.report["data"]["run"]["restart"] == 1
        # Ranks that are still importing may be named behind it, as perhaps stuck.
        assert job.report["verdict"] == "odd"
        found = job.report["findings"][0]
        assert (found["who"]["ranks"], found["cause"]) == ([1], "dead")
        said = [line for line in job.said if not line.startswith("oddrank: the evidence")]
        assert len(said) == 3  # the last one is said again
        assert len({line.partition(" (and ")[0] for line in said}) == 1


@pytest.mark.needs("netns")
def test_ranks_of_another_host_are_watched_too():
    with two_hosts() as hosts, watched_job("event", rank=3, hosts=hosts, on_stall="collect") as job:
        report = job.waits_for("stall")
        assert named(report) == named(job.triaged()) == ([3], "host-stuck")
        assert sorted(job.evidence()["hosts"]) == ["node0", "node1"]
        assert report["findings"][0]["who"]["host"] == "node1"
        assert sorted(report["data"]["heard"]) == [0, 1, 2, 3]


@pytest.mark.needs("netns")
def test_a_rank_of_another_host_that_dies_before_all_ranks_have_met_is_named():
    with two_hosts() as hosts, watched_job("early", rank=3, hosts=hosts) as job:
        assert named(job.waits_for("death")) == ([3], "dead")


@pytest.mark.needs("netns")
def test_a_host_that_is_gone_with_its_guards_is_named():
    options = ("--json", "report.json", "--prometheus", "job.prom")
    with two_hosts() as hosts, watched_job(rank=3, hosts=hosts, options=options) as job:
        gauges = job.folder / "job.prom"
        until(gauges.exists, normal=LONGEST)
        # The judge has heard of both.
        until(lambda: all(f'rank="{r}"' in gauges.read_text() for r in (2, 3)), normal=LONGEST)
        # Stopped, no guard tells of an end that comes before its own.
        for number in ("-STOP", "-KILL"):
            kill = f"ip netns pids {hosts[1].namespace} | xargs kill {number}"
            subprocess.run(kill, shell=True, check=True)

        def found():
            return [(f["who"]["ranks"], f["cause"]) for f in (job.report or {}).get("findings", [])]

        # Half of the ranks are named with low confidence. At first they may not be known as gone.
        until(lambda: found() == [([2, 3], "unreachable")], normal=LONGEST)


@pytest.mark.needs("netns", "nft")
def test_a_link_that_loses_packets_is_held_against_no_rank():
    with two_hosts() as hosts, watched_job(hosts=hosts, launcher="env", stall=2) as job:
        job.comes_to_its_fault()
        for host in hosts:
            host.firewall(f"iif {host.interface} numgen random mod 100 < 30 counter drop")
        time.sleep(15)  # packets are sent again after 0.2 s, then after 0.4 s and so on
        assert (job.said, job.codes) == ([], [None] * 4)
        show = [["ip", "netns", "exec", host.namespace, "nft", "list", "ruleset"] for host in hosts]
        lost = [subprocess.run(one, capture_output=True, text=True, check=True) for one in show]
        assert all(re.search(r"counter packets [1-9]", one.stdout) for one in lost), lost


@pytest.mark.needs("slurm", "netns")
def test_ranks_that_srun_started_on_two_nodes_are_watched(slurm):
    with watched_job("event", rank=3, launcher=slurm.srun(), hosts=slurm.hosts) as job:
        report = job.waits_for("stall")
        assert named(report) == ([3], "host-stuck")
        assert report["findings"][0]["who"]["host"] == "node1"


def guards_and_judge(job):
    """Waits until all ranks, their guards and the judge are there; returns the guards by rank."""
    for rank in range(4):
        job.pid(rank)
    until(lambda: len(job.processes("oddrank-guard")) == 4, normal=LONGEST)
    until(lambda: job.processes("oddrank-judge"), normal=LONGEST)
    guards = [one.pid for one in job.processes("oddrank-guard")]
    words = [Path(f"/proc/{pid}/cmdline").read_text().split("\0") for pid in guards]
    ranks = [int(each[1].removeprefix("rank")) for each in words]
    return dict(zip(ranks, guards, strict=True))


@pytest.mark.parametrize("name", ["oddrank-guard", "oddrank-judge"])
def test_a_guard_or_a_judge_that_is_killed_hurts_nobody(name):
    with watched_job(steps=800) as job:
        guards_and_judge(job)
        job.comes_to_its_fault()  # its ranks wait for the judge no more
        for one in job.processes(name):
            os.kill(one.pid, signal.SIGKILL)
        assert job.ends() == [0]
        assert job.said == []


def test_a_rank_whose_guard_is_gone_is_judged_by_its_record():
    with watched_job("none", rank=2, fresh=True) as job:
        guards = guards_and_judge(job)
        job.comes_to_its_fault()  # at step 20 the judge knows all
        os.kill(guards[2], signal.SIGKILL)
        job.signal(2, signal.SIGSTOP)
        assert named(job.waits_for("stall")) == ([2], "host-stopped")


@pytest.mark.needs("fuse")  # may mount
def test_a_memory_disk_that_is_full_in_the_middle_keeps_neither_job_nor_verdict(tmp_path):
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "none", tmp_path], check=True)
    small = {"ODDRANK_DIR": str(tmp_path), "ODDRANK_TRACE_MB": "0.5"}
    try:
        with watched_job("none", rank=2, environ=small) as job:
            job.comes_to_its_fault()
            with suppress(OSError), (tmp_path / "full").open("wb", buffering=0) as file:
                while file.write(bytes(1 << 16)):
                    pass
            assert not os.statvfs(tmp_path).f_bavail
            job.signal(2, signal.SIGSTOP)
            assert named(job.waits_for("stall")) == ([2], "host-stopped")
            assert len([line for line in job.said if "cannot use ODDRANK_DIR" not in line]) == 1
            job.signal(2, signal.SIGCONT)
            job.waits_for("went-on")
            assert None in job.codes
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)


def test_a_restart_with_fewer_ranks_is_not_misled_by_the_records_of_the_earlier_ones(tmp_path):
    job_ = {"ODDRANK_DIR": str(tmp_path), "TORCHELASTIC_RUN_ID": "run-7"}
    with watched_job("kill", rank=3, launcher="env", environ=job_) as job:
        assert named(job.waits_for("death")) == ([3], "dead")
    assert len(list(tmp_path.glob("run-7/rank*.trace"))) == 4
    job_ |= {"TORCHELASTIC_RESTART_COUNT": "1"}
    with watched_job("event", rank=1, ranks=2, launcher="env", environ=job_) as job:
        report = job.waits_for("stall")
        assert named(report) == ([1], "host-stuck")
        assert (report["world"]["size"], report["data"]["run"]["restart"]) == (2, 1)
        assert sorted(report["data"]["heard"]) == [0, 1]
