"""`oddrank logs first-error`: order, folding, cascades, and what is honestly not known."""

import os
import subprocess
import sys
import threading
import time

import pytest

from conftest import SAMPLES
from logs.logs_command import oddrank, report, stamp, written
from processes import held_port


def raised(rank, text="ValueError: boom", prefix="[rank{}]: ", line=9):
    start = prefix.format(rank)
    return [f"{start}Traceback (most recent call last):",
            f'{start}  File "train.py", line {line}, in step', f"{start}{text}"]  # fmt: skip


LOST = "RuntimeError: [/pytorch/gloo/pair.cc:1] Connection closed by peer [10.0.0.{}]:1234"


def cascade(first, ranks):
    lines = raised(first)
    for rank in ranks:
        lines += raised(rank, LOST.format(rank), line=12)
    return lines


def test_the_first_failure_is_named_and_the_cascade_is_folded(tmp_path):
    log = written(tmp_path / "job.log", "[rank0]: WARNING low disk", *cascade(2, (0, 1, 3)))
    made = report("first-error", log, check=1)
    assert made["verdict"] == "odd"
    assert made["findings"][0]["who"]["ranks"] == [2]
    kinds = [(said["kind"], said["ranks"]) for said in made["data"]["said"]]
    assert kinds == [("said", [0]), ("own", [2]), ("lost", [0, 1, 3])]
    assert made["data"]["order"] == "line"
    assert made["data"]["said"][1]["source"].endswith("job.log:2")


def test_the_list_quotes_the_lines_with_their_places(tmp_path):
    log = written(tmp_path / "job.log", *cascade(2, (0, 1, 3)))
    text = oddrank("first-error", log, check=1).stdout
    assert "in order of lines" in text
    assert "rank 2: raised ValueError: boom" in text
    assert "ranks 0-1, 3: raised RuntimeError" in text
    assert "[job.log:1]" in text


def test_a_hundred_equal_failures_are_one_line(tmp_path):
    log = written(tmp_path / "job.log", *(line for rank in range(100) for line in raised(rank)))
    (said,) = report("first-error", log, check=1)["data"]["said"]
    assert (said["ranks"], said["count"]) == (list(range(100)), 100)


def test_times_order_failures_of_several_logs(tmp_path):
    late = written(tmp_path / "rank_0.log", *raised(0, LOST.format(1), f"{stamp(9)} "))
    early = written(tmp_path / "rank_1.log", *raised(1, prefix=f"{stamp(5)} "))
    made = report("first-error", late, early, check=1)
    assert made["data"]["order"] == "time"
    assert [said["ranks"] for said in made["data"]["said"]] == [[1], [0]]


def at(second, *more):
    """Returns the prefix of lines with a time: of a rank, in whole seconds unless more is given."""
    return f"[rank{{}}]: 2026-01-01 00:00:{second:02}{''.join(more)} "


def order(log):
    return [(said["kind"], said["ranks"])
            for said in report("first-error", log, check=1)["data"]["said"]]  # fmt: skip


def test_a_consequence_does_not_precede_its_cause_within_a_second(tmp_path):
    lost = [line for rank in (0, 1) for line in raised(rank, LOST.format(rank), at(7), line=12)]
    log = written(tmp_path / "job.log", *lost, *raised(2, prefix=at(7)))
    assert order(log) == [("own", [2]), ("lost", [0, 1])]
    rows = oddrank("first-error", log, check=1).stdout.splitlines()
    assert rows[1].startswith("    +0.000 s  rank 2")
    assert rows[2].startswith("~   +0.000 s  ranks 0-1")


@pytest.mark.parametrize(
    ("of_cause", "of_others", "first"),
    [
        (at(7, ",900"), at(7), "own"),  # the others' second is the same, and they may be later
        (at(7), at(7, ",100"), "own"),
        (at(8), at(7), "lost"),
        (at(8, ",000"), at(7), "lost"),
        (at(7, ",900"), at(7, ",100"), "lost"),
        (at(7, ",100"), at(7, ",100"), "own"),
    ],
)
def test_times_order_causes_and_consequences_as_far_as_they_are_exact(
    tmp_path, of_cause, of_others, first
):
    lost = raised(0, LOST.format(0), of_others, line=12)
    log = written(tmp_path / "job.log", *lost, *raised(2, prefix=of_cause))
    assert order(log)[0][0] == first


def test_a_time_in_whole_seconds_proves_no_order_within_the_second(tmp_path):
    lost = raised(0, LOST.format(0), at(7, ",900"), line=12)
    log = written(tmp_path / "job.log", *lost, *raised(2, prefix=at(7)))
    assert oddrank("first-error", log, check=1).stdout.splitlines()[2].startswith("~   +0.900 s")


def test_logs_without_times_have_no_order_and_it_is_said(tmp_path):
    logs = [
        written(tmp_path / f"rank_{rank}.log", *raised(rank, text, ""))
        for rank, text in enumerate(("ValueError: a", "KeyError: 'b'"))
    ]
    made = report("first-error", *logs, check=1)
    assert made["data"]["order"] == "unknown"
    assert (made["verdict"], made["findings"][0]["cause"]) == ("unknown", "no-order")
    assert "no order" in oddrank("first-error", *logs, check=1).stdout


def logs_of(folder, *texts, ends=()):
    """Writes a log a rank: times in its lines, none in its traceback. ends: the last lines."""
    for rank, (text, end) in enumerate(zip(texts, ends, strict=True)):
        lines = (f"{stamp(1 + rank / 100)} WARNING low disk", f"{stamp(end)} ERROR failed")
        written(folder / f"rank_{rank}.log", *lines, *raised(rank, text, ""))
    return folder


def test_a_traceback_without_a_time_has_that_of_the_line_before(tmp_path):
    logs = logs_of(tmp_path, LOST.format(1), "ValueError: boom", ends=(8.9, 9))
    made = report("first-error", logs, check=1)
    assert made["data"]["order"] == "time"
    failures = [said for said in made["data"]["said"] if said["kind"] != "said"]
    # The lost peer's own line may be long before its traceback.
    assert [(said["kind"], said["ranks"]) for said in failures] == [("own", [1]), ("lost", [0])]
    assert failures[0]["time"] - failures[1]["time"] == pytest.approx(0.1)
    text = oddrank("first-error", logs, check=1).stdout
    assert "tracebacks that name none have that of the line before (~)" in text
    assert "~   -0.100 s  rank 0: raised RuntimeError" in text


def test_times_of_lines_before_do_not_tell_which_failure_was_the_cause(tmp_path):
    logs = logs_of(tmp_path, "KeyError: 1", "ValueError: boom", ends=(9, 4))
    made = report("first-error", logs, check=1)
    assert (made["verdict"], made["findings"][0]["cause"]) == ("unknown", "no-order")


@pytest.mark.parametrize("times", [True, False])
def test_warnings_of_all_logs_are_listed_with_their_ranks(tmp_path, times):
    logs = logs_of(tmp_path, *["KeyError: 1"] * 4, ends=(9, 9.1, 9.2, 9.3))
    for path in () if times else logs.iterdir():
        written(path, *(line.removeprefix(line[:24] if line[:2] == "20" else "")
                        for line in path.read_text().splitlines()))  # fmt: skip
    written(tmp_path / "rank_4.log", f"{stamp(20)} WARNING low disk" if times else "quiet")
    said = report("first-error", logs, check=1)["data"]["said"]
    warned = {one["text"].split(" ", 2 * times)[-1]: one["ranks"] for one in said[:2]}
    assert warned == {"WARNING low disk": [0, 1, 2, 3], "ERROR failed": [0, 1, 2, 3]}


def test_a_log_without_failures_is_healthy(tmp_path):
    log = written(tmp_path / "job.log", *(f"[rank0]: step {step}" for step in range(9)))
    assert report("first-error", log)["verdict"] == "healthy"


def test_a_hostile_line_is_shown_and_not_obeyed(tmp_path):
    log = written(tmp_path / "job.log", *raised(3, "ValueError: \x1b[2J\x1b]0;x\x07\u202e\x9b31m"))
    done = oddrank("first-error", log, check=1)
    assert all(c.isprintable() or c == "\n" for c in done.stdout + done.stderr)


def test_a_real_watchdogs_victims_are_not_called_the_cause():
    sample = SAMPLES / "watchdog_logs" / "nemo_rl_ray_prefixed_pg_rank_trap.log"
    if not sample.exists():
        pytest.skip("no samples")
    made = report("first-error", sample, check=1)
    assert {said["kind"] for said in made["data"]["said"]} & {"waited", "own"}
    assert made["verdict"] in ("odd", "unknown")


def test_following_waits_for_a_failure(tmp_path):
    log = written(tmp_path / "job.log", "[rank0]: step 1")

    def fail():
        time.sleep(0.5)
        with log.open("a") as file:
            file.writelines(f"{line}\n" for line in raised(1))

    thread = threading.Thread(target=fail)
    thread.start()
    made = report("first-error", log, "--follow", "--for", "100", check=1)
    thread.join()
    assert made["findings"][0]["who"]["ranks"] == [1]


def test_following_ends_at_its_time(tmp_path):
    log = written(tmp_path / "job.log", "[rank0]: step 1")
    assert report("first-error", log, "--follow", "--for", "0")["verdict"] == "healthy"


JOB = """
import datetime, os, sys, time
from pathlib import Path
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, how = dist.get_rank(), sys.argv[1]
for step in range(2):
    dist.all_reduce(torch.ones(8))
    print("step", step, flush=True)
if rank == 1:
    if how == "raises":
        raise ValueError("boom")
    time.sleep(300)
if how == "hangs":
    dist.distributed_c10d._set_pg_timeout(datetime.timedelta(seconds=5))
try:
    dist.all_reduce(torch.ones(8))
except RuntimeError:
    # The launcher reads each rank's lines by itself, and may come to those of rank 1 late.
    log, end = Path(__file__).with_name("job.log"), time.monotonic() + 200
    while how == "raises" and "boom" not in log.read_text() and time.monotonic() < end:
        time.sleep(0.01)
    raise
"""
ALONE = """
import os, time
rank = next(os.environ[v] for v in ("SLURM_PROCID", "OMPI_COMM_WORLD_RANK") if v in os.environ)
print("hello of", rank, flush=True)
if rank == "2":
    raise ValueError("boom")
time.sleep(300)
"""


def output(folder, command, *arguments, script=JOB, **more):
    path = written(folder / "train.py", script)
    log = folder / "job.log"
    with log.open("wb") as file:
        subprocess.run([*command, path, *arguments], stdout=file, stderr=file, timeout=240,
                       check=False, **more)  # fmt: skip
    return log


@pytest.mark.job
@pytest.mark.needs("torch")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("how", ["raises", "hangs"])
def test_torchruns_tee_tells_who_failed_first(tmp_path, how):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "3", "--tee",
                "3"]  # fmt: skip
    log = output(tmp_path, torchrun, how, env={**os.environ, "OMP_NUM_THREADS": "1"})
    made = report("first-error", log, check=1)
    failures = [said for said in made["data"]["said"] if said["kind"] != "said"]
    named = {rank for f in made["findings"] if f["confidence"]["level"] != "low"
             for rank in f["who"]["ranks"]}  # fmt: skip
    if how == "raises":
        assert (failures[0]["kind"], failures[0]["ranks"]) == ("own", [1]), log.read_text()
        assert named == {1}
    else:  # victims speak first, and nobody else is called the cause
        assert failures[0]["kind"] in ("waited", "lost"), log.read_text()
        assert 1 not in failures[0]["ranks"]
        assert named <= {1}


@pytest.mark.job
@pytest.mark.needs("mpi")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_mpiruns_tagged_output_tells_who_failed_first(tmp_path, unbuffered):
    mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--tag-output", "-n", "3",
              sys.executable]  # fmt: skip
    log = output(tmp_path, mpirun, script=ALONE,
                 env={**os.environ, "PYTHONUNBUFFERED": unbuffered})  # fmt: skip
    made = report("first-error", log, check=1)
    assert made["findings"][0]["who"]["ranks"] == [2]


def test_a_traceback_that_mpirun_tagged_in_parts_is_read_as_one(tmp_path):
    log = written(
        tmp_path / "job.log",
        "[1,1]<stderr>:Traceback (most rec[1,0]<stdout>:step[1,1]<stderr>:ent call last):",
        '[1,1]<stderr>:  File "[1,0]<stdout>: 7[1,1]<stderr>:train.py", line 9, in step',
        "[1,0]<stdout>:",
        "[1,1]<stderr>:Value[1,1]<stderr>:Error: boom",
    )
    (said,) = report("first-error", log, check=1)["data"]["said"]
    assert (said["text"], said["ranks"]) == ("raised ValueError: boom at step (train.py:9)", [1])
    assert said["source"].endswith("job.log:1")


OF_MPI = """
import os
for name in ("RANK", "SIZE"):
    os.environ[name.replace("SIZE", "WORLD_SIZE")] = os.environ["OMPI_COMM_WORLD_" + name]
"""


@pytest.mark.job
@pytest.mark.needs("mpi", "torch")
@pytest.mark.timeout(300)
def test_mpiruns_whole_seconds_put_the_cause_before_the_lost_peers(tmp_path):
    mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--tag-output",
              "--timestamp-output", "-n", "3", sys.executable]  # fmt: skip
    with held_port() as port:
        world = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1",
                 "PYTHONUNBUFFERED": "1"}  # fmt: skip
        log = output(tmp_path, mpirun, "raises", script=OF_MPI + JOB, env={**os.environ, **world})
    data = report("first-error", log, check=1)["data"]
    failures = [said for said in data["said"] if said["kind"] != "said"]
    assert data["order"] == "time", log.read_text()
    assert (failures[0]["kind"], failures[0]["ranks"]) == ("own", [1]), log.read_text()


@pytest.mark.job
@pytest.mark.needs("slurm", "netns")
def test_sruns_labels_tell_who_failed_first(slurm, tmp_path):
    srun = [*slurm.inside(0), "srun", "-N", "2", "--ntasks-per-node", "2", "--label",
            "--kill-on-bad-exit=1", sys.executable]  # fmt: skip
    log = output(tmp_path, srun, script=ALONE, env=slurm.environ(os.environ))
    made = report("first-error", log, check=1)
    assert made["findings"][0]["who"]["ranks"] == [2]
