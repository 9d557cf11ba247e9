"""What to type next: only where evidence points there, at most four lines, timing is said."""

from dataclasses import replace

import pytest

from oddrank.triage.facts import (
    Activity,
    Advice,
    Call,
    Counts,
    Death,
    Frame,
    Group,
    Process,
    Progress,
    Source,
    Stack,
    Suspect,
    Thread,
    Trouble,
)
from oddrank.triage.next_steps import STEPS, next_steps
from oddrank.triage.view import view

HERE = Source("job.log")
RANK = Process(3, "n1", 4711)


def suspect(cause, **more):
    return Suspect(cause, more.pop("processes", (RANK,)), "rule", 1, **more)


def died(how, text="", **more):
    return suspect("dead", death=Death(RANK, how, HERE, text=text, **more))


def keys(suspect, *facts):
    """Returns the rows that are shown."""
    lines = next_steps(suspect, view(facts))
    known = {step.key: step.text.partition("{")[0][:40] for step in STEPS}
    return [key for line in lines for key, begin in known.items() if line.startswith(begin)]


def test_keys_and_beginnings_are_each_one_row():
    assert len({step.key for step in STEPS}) == len(STEPS)
    assert all(step.source for step in STEPS)


def test_a_stack_is_asked_for_only_where_none_is():
    stuck = suspect("not-entered")
    assert "py-spy" in keys(stuck)
    seen = Stack((Frame("f"),), (Thread(RANK),))
    assert "py-spy" not in keys(stuck, seen)
    assert "py-spy" not in keys(suspect("not-entered", leaf=Frame("f")))


def test_one_look_that_is_not_sure_asks_for_a_second_one():
    unsure = Suspect("host-stuck", (RANK,), "stacks-awaited", 1)
    assert keys(unsure)[0] == "second look"
    assert "second look" not in keys(replace(unsure, certainty=2))


def test_the_commands_have_the_pid_and_host():
    lines = next_steps(suspect("host-stopped"), view(()))
    assert lines[0].startswith("grep -e State -e TracerPid /proc/4711/status  (on n1)")
    assert "kill -CONT 4711" in lines[0]
    (first, *_) = next_steps(suspect("host-stopped", processes=(Process(3),)), view(()))
    assert "/proc/PID/status  (on the host of rank 3)" in first


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("CUDA error: an illegal memory access was encountered", "CUDA_LAUNCH_BLOCKING"),
        ("RuntimeError: [c10d] bad", "TORCH_SHOW_CPP_STACKTRACES"),
        ("NCCL error: unhandled system error", "NCCL_DEBUG"),
    ],
)
def test_the_words_of_a_death_choose_the_setting(text, key):
    assert key in keys(died("exception", text))
    assert key not in keys(died("exception", "ValueError: 3"))


def test_settings_that_change_timing_say_so():
    (line,) = next_steps(died("exception", "CUDA error: device-side assert"), view(()))
    assert line.endswith("changes timing, and may hide the fault")


def test_a_crash_asks_for_a_core_and_a_kill_for_the_kernels_log():
    assert keys(died("signal", signal=11)) == ["dmesg", "core"]
    assert keys(died("signal", signal=9)) == ["dmesg"]
    oom = Trouble("oom", "out of memory", HERE, "n1")
    assert keys(died("signal", signal=9), oom) == []


def test_a_core_is_asked_for_only_where_none_is():
    seen = Stack((Frame("f", native=True),), (Thread(RANK),))
    assert "core" not in keys(died("signal", signal=11), seen)


def test_what_ran_out_of_memory_is_asked_what_it_may_use():
    assert keys(died("oom", "Detected 1 oom_kill event in StepId=12.0")) == ["memory", "sacct"]


def test_nobody_looks_at_processes_that_ended():
    stuck, gone = suspect("not-entered"), Death(Process(1), "exit", HERE, code=1)
    (line,) = (step for step in next_steps(stuck, view([gone])) if step.startswith("py-spy"))
    assert "the next time it is stuck" in line
    unsure = Suspect("host-stuck", (RANK,), "stacks-awaited", 1)
    assert "second look" not in keys(unsure, gone)
    assert "second look" not in keys(replace(unsure, rule="stacks-awaited-still"))


def test_a_fault_of_a_gpu_asks_for_its_state():
    fault = suspect("device", trouble=(Trouble("xid", "Xid 79", HERE, "n1", "GPU 0000:9b:00"),))
    assert keys(fault) == ["nvidia-smi", "dcgmi", "oddrank selftest"]
    flaps = suspect("device", trouble=(Trouble("ib-flap", "lost", HERE, "n1", "ib6"),))
    assert keys(flaps) == ["ibstat", "NCCL_DEBUG", "oddrank selftest"]


def test_the_recorder_is_asked_for_if_a_log_says_that_it_was_off():
    lost = suspect("unknown", processes=(), waiting=(RANK,), at=Call(7, "all_reduce"))
    assert "TORCH_FR_BUFFER_SIZE" not in keys(lost)
    assert "TORCH_FR_BUFFER_SIZE" in keys(lost, Advice("flight-recorder", HERE))
    named = next_steps(lost, view((Advice("flight-recorder-dump:/tmp/x_rank_3", HERE),)))
    assert named[0] == "add the dumps that the log names: /tmp/x_rank_3"


def test_a_process_that_answers_nobody_is_looked_at_before_anything_is_attached_to_it():
    (first, *rest) = next_steps(suspect("unreachable"), view(()))
    assert first.startswith("ps -o pid,stat,wchan,etime -p 4711  (on n1;")
    assert not any(line.startswith("py-spy") for line in rest)


def test_ras_is_asked_again_where_it_has_been_asked():
    behind = suspect("not-entered-or-inside")
    assert "ncclras" in keys(behind, Counts("c", "", ((0, 1), (1, 2)), HERE))
    assert "ncclras" not in keys(behind)


def test_a_pod_and_a_slurm_job_are_looked_up_in_their_own_way():
    assert "kubectl" in keys(died("oom", "pod w-3, container c: OOMKilled"))
    assert "sacct" in keys(died("signal", "slurmstepd: error: killed", signal=15))


def test_never_more_than_four():
    every = Suspect(
        "unknown", (), "awaited-and-silent", 0, waiting=(RANK,), at=Call(7, "all_reduce"),
        trouble=(Trouble("xid", "", HERE), Trouble("network", "", HERE)),
        death=Death(RANK, "exception", HERE, signal=11, text="CUDA error NCCL slurm RuntimeError"),
    )  # fmt: skip
    lines = next_steps(every, view((Advice("flight-recorder", HERE),)))
    assert len(lines) == 4
    assert len(set(lines)) == 4


def test_a_recorded_job_is_not_told_to_record():
    stuck, seen = suspect("infinite-loop"), Activity(RANK, HERE)
    assert keys(stuck) == ["oddrank run"]
    assert keys(stuck, seen) == ["oddrank trace where"]


def test_settings_of_nccl_are_for_jobs_that_may_use_it():
    lost = suspect("unknown", processes=(), waiting=(RANK,), at=Call(7, "all_reduce"))
    nccl, gloo = (Progress(RANK, Group("0"), HERE, backend) for backend in ("nccl", "gloo"))
    assert "COLL" in keys(lost, nccl)
    assert "COLL" not in keys(lost, gloo)


def test_a_bus_error_asks_for_shared_memory():
    text = "DataLoader worker (pid 8) is killed by signal: Bus error."
    assert "/dev/shm" in keys(died("exception", text))


def test_settings_say_which_versions_know_them():
    off = Advice("flight-recorder", HERE)
    lines = next_steps(suspect("not-entered"), view((off,)))
    assert any(line.endswith("  [torch 2.2+]") for line in lines)
