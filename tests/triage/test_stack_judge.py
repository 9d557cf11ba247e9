"""Tests whom the stacks of all ranks name: who stands outside while others wait for peers."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from oddrank.triage import report
from oddrank.triage.evidence import Item, Notes
from oddrank.triage.evidence.stacks import KIND
from oddrank.triage.facts import (
    Child,
    Fact,
    Frame,
    Group,
    Process,
    Progress,
    Source,
    Stack,
    Suspect,
    Thread,
    World,
)
from oddrank.triage.findings import finding
from oddrank.triage.judges.stacks import judge
from oddrank.triage.view import view

TRAIN = "train (train.py:40)\nmain (train.py:90)\n<module> (train.py:99)"
C10D = "torch/distributed/distributed_c10d.py"
ALL_REDUCE = f"""all_reduce ({C10D}:3252)
wrapper (torch/distributed/c10d_logger.py:83)
step (train.py:20)
{TRAIN}"""
DATALOADER = f"""wait (threading.py:306)
get (queue.py:179)
_try_get_data (torch/utils/data/dataloader.py:1011)
_next_data (torch/utils/data/dataloader.py:1207)
__next__ (torch/utils/data/dataloader.py:530)
{TRAIN}"""
COMPUTE = f"attention (model.py:7)\nforward (model.py:70)\n{TRAIN}"
LOCKED = f"acquire (filelock/_api.py:200)\nbuild (train.py:3)\n{TRAIN}"
CHECKPOINT = f"read (torch/serialization.py:500)\nload (torch/serialization.py:900)\n{TRAIN}"


def frames(text: str) -> tuple[Frame, ...]:
    found = []
    for line in text.splitlines():
        function, _, place = line.rpartition(" (")
        file, _, number = place.rstrip(")").partition(":")
        native = not file.endswith(".py")
        found.append(Frame(function, file, int(number) if number else None, native))
    return tuple(found)


def stack(text: str, *ranks: int, look: int = 0, **more: object) -> Stack:
    source = Source("a.txt", 1)
    more = {"name": "MainThread", **more}
    threads = tuple(Thread(Process(r), source=source, look=look, **more) for r in ranks)  # type: ignore[arg-type]
    return Stack(frames(text), threads)


def judged(*facts: Fact) -> list[Suspect]:
    return judge(view(facts))


def only(*facts: Fact) -> Suspect:
    (suspect,) = judged(*facts)
    return suspect


def ranks(processes: Iterable[Process]) -> list[int | None]:
    return [process.rank for process in processes]


@pytest.mark.parametrize(
    ("text", "kind", "leaf"),
    [
        (DATALOADER, "data", "_try_get_data"),
        (LOCKED, "lock", "build"),
        (CHECKPOINT, "disk", "read"),
        (f"recv_into (ssl.py:1163)\ndownload (train.py:9)\n{TRAIN}", "network", "download"),
        (f"__getitem__ (my/dataset.py:4)\nfetch (torch/utils/data/_utils/fetch.py:52)\n{TRAIN}",
         "data", "__getitem__"),
        (f"parse (my/dataset.py:4)\nfetch (torch/utils/data/_utils/fetch.py:52)\n{TRAIN}",
         "data", "parse"),
        (f"pread64 (libc.so.6)\nread_shard (my/io.py:4)\nload_checkpoint (my/io.py:1)\n{TRAIN}",
         "disk", "pread64"),
    ],
)  # fmt: skip
def test_a_rank_outside_is_named_while_others_wait_for_peers(text, kind, leaf):
    others = [0, 1, *range(3, 16 if kind == "data" else 8)]
    suspect = only(stack(ALL_REDUCE, *others), stack(text, 2))
    assert (suspect.cause, suspect.leaf_class) == ("host-stuck", kind)
    assert ranks(suspect.processes) == [2]
    assert ranks(suspect.waiting) == others
    assert suspect.leaf is not None
    assert suspect.leaf.function == leaf
    assert suspect.at is not None
    assert suspect.at.op == "all_reduce"
    assert suspect.at.site[0].function == "step"
    assert suspect.certainty == 2


def test_the_few_that_wait_are_not_named_whatever_their_number():
    suspect = only(stack(ALL_REDUCE, 0), stack(DATALOADER, *range(1, 32)))
    assert ranks(suspect.processes) == list(range(1, 32))
    assert ranks(suspect.waiting) == [0]


def test_one_look_does_not_name_a_rank_that_computes():
    suspect = only(stack(ALL_REDUCE, 0, 1, 2), stack(COMPUTE, 3, state="active+gil"))
    assert suspect.certainty == 0
    assert ranks(suspect.processes) == [3]


def test_a_rank_that_computes_the_same_in_two_looks_does_not_come_to_the_collective():
    suspect = only(
        *(stack(ALL_REDUCE, 0, 1, 2, look=look) for look in (0, 1)),
        *(stack(COMPUTE, 3, state="active+gil", gil=True, look=look) for look in (0, 1)),
    )
    assert (suspect.cause, suspect.certainty) == ("infinite-loop", 1)
    assert ranks(suspect.processes) == [3]


def test_a_rank_that_moves_between_looks_is_not_stuck():
    suspect = only(
        *(stack(ALL_REDUCE, 0, 1, 2, look=look) for look in (0, 1)),
        stack(COMPUTE, 3, state="active"),
        stack(CHECKPOINT, 3, look=1),
    )
    assert (suspect.cause, suspect.certainty) == ("moving", 0)


def test_the_collective_of_the_autograd_thread_counts_not_the_main_thread_that_waits_for_it():
    backward = (
        f"backward (torch/autograd/__init__.py:266)\nbackward (torch/_tensor.py:522)\n{TRAIN}"
    )
    gather = (
        f"all_gather_into_tensor ({C10D}:2709)\n"
        "all_gather_into_tensor (deepspeed/comm/torch.py:219)\n"
        "log_wrapper (deepspeed/comm/comm.py:117)\n"
        "fetch_sub_module (deepspeed/runtime/zero/partitioned_param_coordinator.py:317)"
    )
    suspect = only(
        stack(backward, 0, 1, 2),
        stack(gather, 0, 1, 2, name="", id=4079),
        stack("", 0, 1, 2, name="", id=4080),
        stack("wait (threading.py:324)\nrun (tqdm/_monitor.py:60)", 0, 1, 2, 3, name="Thread-1"),
        stack(DATALOADER, 3),
    )
    assert ranks(suspect.processes) == [3]
    assert ranks(suspect.waiting) == [0, 1, 2]
    assert suspect.at is not None
    assert suspect.at.op == "all_gather_into_tensor"
    assert suspect.at.site[0].function == "fetch_sub_module"


def test_helper_threads_are_no_evidence():
    helpers = [
        stack("get (queue.py:171)\n_worker (concurrent/futures/thread.py:81)", 0, 1, 2,
              name="ThreadPoolExecutor-0_0", id=5),
        stack("poll (libc.so.6)\nncclProxyProgress (libnccl.so.2)", 0, 1, 2, name="", id=6),
        stack("do_one_step (torch/utils/data/_utils/pin_memory.py:32)", 0, 1, 2,
              name="Thread-2 (_pin_memory_loop)", id=7),
    ]  # fmt: skip
    suspect = only(stack(ALL_REDUCE, 0, 1, 2), *helpers)
    assert (suspect.cause, suspect.rule) == ("unknown", "stacks-all-wait")


def test_ranks_that_wait_in_different_calls_are_all_named():
    barrier = f"barrier ({C10D}:5356)\nclose (train.py:67)\n{TRAIN}"
    suspect = only(stack(ALL_REDUCE, 0, 1, 3), stack(barrier, 2))
    assert (suspect.cause, suspect.certainty, suspect.processes) == ("unknown", 0, ())
    said = finding(suspect).what
    assert said.startswith(
        "rank 2 in barrier at close (train.py:67); ranks 0-1, 3 in all_reduce at step (train.py:20)"
    )
    # The same call at two lines is two calls.
    twice = [stack(ALL_REDUCE, 0, 1), stack(ALL_REDUCE.replace(":20", ":21"), 2)]
    assert "rank 2 in all_reduce at step (train.py:21)" in finding(only(*twice)).what


def test_a_functions_name_alone_does_not_say_that_it_waits_for_a_file():
    nap = f"save_checkpoint (train.py:30)\n{TRAIN}"
    waits = [stack(ALL_REDUCE, *range(1, 9))]
    suspect = only(stack(nap, 0), *waits)
    assert finding(suspect).what.startswith("rank 0 is stuck in save_checkpoint (train.py:30); ")
    suspect = only(stack(CHECKPOINT, 0), *waits)
    assert finding(suspect).what.startswith("rank 0 is stuck: waits for a file in read ")


def test_two_looks_are_sure_for_another_reason_than_one():
    def why(*looks):
        found = [stack(text, *of, look=n) for n in looks for text, of in (
            (LOCKED, [3]), (ALL_REDUCE, [0, 1, 2])
        )]  # fmt: skip
        return finding(only(*found)).confidence.why

    assert why(0).startswith("one look only")
    assert "in each look it stood at the same place" in why(0, 1)


def test_workers_of_dataloaders_and_launchers_are_no_ranks():
    worker = (
        "pread (libc.so.6)\n_worker_loop (torch/utils/data/_utils/worker.py:349)\n<module> (a.py:1)"
    )
    agent = (
        "_invoke_run (torch/distributed/elastic/agent/server/api.py:900)\n"
        "launch_agent (torch/distributed/launcher/api.py:255)"
    )
    suspect = only(
        stack(ALL_REDUCE, 0, 1, 2),
        stack(DATALOADER, 3),
        Stack(frames(worker), (Thread(Process(None, None, 77), "MainThread"),)),
        Stack(frames(agent), (Thread(Process(None, None, 78), "MainThread"),)),
    )
    assert ranks(suspect.processes) == [3]
    assert any("dataloader worker (pid 77)" in point.text for point in suspect.support)


def test_what_the_processes_do_that_a_rank_started_is_told_as_its_own():
    def child(pid, parent):
        return Child(Process(None, None, pid), parent, Source("a.txt", 1))

    def of(text, pid):
        return Stack(frames(text), (Thread(Process(None, None, pid), "MainThread"),))

    reading = "read (my/dataset.py:4)\n_worker_loop (torch/utils/data/_utils/worker.py:349)"
    tokenizing = f"recv_into (ssl.py:1163)\ntokenize (my/text.py:9)\n{TRAIN}"
    suspect = only(
        stack(ALL_REDUCE, 0, 1, 2),
        stack(DATALOADER, 3),
        of(reading, 77), child(77, Process(0)),
        of(tokenizing, 79), child(79, Process(3)),
    )  # fmt: skip
    assert ranks(suspect.processes) == [3]
    words = " ".join(point.text for point in suspect.support)
    assert "its child process (pid 79) stands in tokenize (my/text.py:9)" in words
    assert "77" not in words


def test_the_children_of_a_launcher_are_ranks():
    agent = "launch_agent (torch/distributed/launcher/api.py:255)"
    found = [
        Stack(frames(agent), (Thread(Process(pid=1), "MainThread"),)),
        *(Child(Process(pid=10 + r), Process(pid=1), Source("a.txt")) for r in range(4)),
        Stack(
            frames(ALL_REDUCE), tuple(Thread(Process(pid=10 + r), "MainThread") for r in (0, 1, 2))
        ),
        Stack(frames(DATALOADER), (Thread(Process(pid=13), "MainThread"),)),
    ]
    suspect = only(*found)
    assert [p.pid for p in suspect.processes] == [13]
    assert len(suspect.waiting) == 3


def test_the_call_is_that_of_those_who_came_the_same_way():
    path = f"run (engine.py:9)\n{TRAIN}"
    near = f"broadcast ({C10D}:1)\nbroadcast_data (data.py:5)\nload (engine.py:7)\n{path}"
    there = f"get (queue.py:1)\nnext_batch (engine.py:2)\nload (engine.py:3)\n{path}"
    suspect = only(stack(ALL_REDUCE, *range(8)), stack(near, 9, 10), stack(there, 11))
    assert ranks(suspect.processes) == [11]
    assert suspect.at is not None
    assert (suspect.at.op, suspect.at.site[0].function) == ("broadcast", "broadcast_data")
    assert len(suspect.waiting) == 10


def test_a_rank_that_leaves_is_awaited():
    leaving = f"destroy_process_group ({C10D}:2100)\n{TRAIN}"
    suspect = only(stack(ALL_REDUCE, 0, 1, 2), stack(leaving, 3))
    assert ranks(suspect.processes) == [3]


def test_few_that_wait_in_one_look_may_be_of_a_job_that_goes_on():
    looks = [
        [stack(ALL_REDUCE, 0, 1, look=look), stack(DATALOADER, 2, 3, look=look)] for look in (0, 1)
    ]
    assert only(*looks[0]).certainty == 0
    assert only(*looks[0], *looks[1]).certainty == 2


def test_ranks_on_their_way_show_that_the_job_may_go_on():
    suspect = only(stack(ALL_REDUCE, 0, 1), stack(COMPUTE, 2), stack(DATALOADER, 3))
    assert suspect.certainty == 0


def test_an_idle_thread_in_a_function_named_after_communication_may_wait_for_peers():
    wait = f"reduce_gradients (train.py:7)\n{TRAIN}"
    suspect = only(stack(wait, *range(7), state="idle"), stack(LOCKED, 7))
    assert (ranks(suspect.processes), suspect.certainty) == ([7], 1)
    suspect = only(stack(wait, 0, 1, state="idle"), stack(DATALOADER, 2))
    assert (ranks(suspect.processes), suspect.certainty) == ([2], 0)
    suspect = only(stack(wait, 0, 1, state="idle"), stack(ALL_REDUCE, 2, 3))
    assert suspect.processes == ()


def test_a_thread_that_sleeps_with_the_gil_holds_it():
    held = stack(f"read_device (train.py:1)\n{TRAIN}", 3, state="idle+gil", gil=True)
    suspect = only(stack(ALL_REDUCE, 0, 1, 2), held)
    assert (suspect.cause, ranks(suspect.processes)) == ("gil-held", [3])


def test_three_ranks_at_rest_in_one_call_name_the_only_one_that_waits_for_something_else():
    waits = stack(ALL_REDUCE, 0, 1, 2, state="idle")
    suspect = only(waits, stack(CHECKPOINT, 3, state="idle"))
    assert (ranks(suspect.processes), suspect.certainty) == ([3], 1)
    assert any("one look only" in point.text for point in suspect.against)
    # Healthy jobs wait for data all the time.
    assert only(waits, stack(DATALOADER, 3, state="idle")).certainty == 0
    assert only(stack(ALL_REDUCE, *range(7)), stack(DATALOADER, 7)).certainty == 0


@pytest.mark.parametrize(
    "others",
    [
        (stack(ALL_REDUCE, 0, 1, state="idle"), stack(ALL_REDUCE, 2, state="active")),
        (stack(ALL_REDUCE, 0, 1), stack(ALL_REDUCE.replace("step", "norm"), 2)),
        (stack(ALL_REDUCE.replace("all_reduce", "recv"), 0, 1, 2),),
        (stack(ALL_REDUCE, 0, 1, 2), stack(COMPUTE, 4)),
        (stack(ALL_REDUCE, 0, 1),),
    ],
)
def test_one_look_at_few_ranks_that_may_go_on_names_nobody_for_sure(others):
    suspect = only(*others, stack(CHECKPOINT, 3))
    assert (ranks(suspect.processes), suspect.certainty) == ([3], 0)


def test_two_tools_that_looked_at_a_job_are_two_looks():
    sleeps = f"flush (train.py:9)\n{TRAIN}"
    first = [stack(ALL_REDUCE, 0, 1), stack(sleeps, 2)]
    second = [
        Stack(s.frames, tuple(replace(t, source=Source("b.txt", 1)) for t in s.threads))
        for s in first
    ]
    assert only(*first).certainty == 0
    suspect = only(*first, *second)
    assert (ranks(suspect.processes), suspect.certainty) == ([2], 1)
    elsewhere = replace(second[1], frames=frames(f"flush (train.py:10)\n{TRAIN}"))
    assert only(*first, second[0], elsewhere).certainty == 0


def test_timeouts_say_that_a_rank_outside_is_stuck():
    source = Source("a.log", 1)
    late = Progress(Process(0), Group("0", (0, 1, 2)), source, enqueued=7, timed_out=True)
    suspect = only(stack(ALL_REDUCE, 0, 1), stack(COMPUTE, 2), late)
    assert (ranks(suspect.processes), suspect.certainty) == ([2], 1)


def test_the_only_rank_that_wrote_no_dump_of_itself_is_awaited():
    answered = stack(ALL_REDUCE, 0, 1, 3, own=True)
    suspect = only(answered)
    assert (suspect.cause, ranks(suspect.processes)) == ("not-entered-or-inside", [2])
    assert suspect.certainty == 1
    assert ranks(suspect.waiting) == [0, 1, 3]
    seen = stack(ALL_REDUCE.replace("step", "norm"), 2)  # by another tool
    assert ranks(only(answered, seen).processes) == [2]
    assert only(answered, World(8, Source("a"))).processes == ()
    assert only(stack(ALL_REDUCE, 0, 1, 3)).processes == ()  # somebody else looked at them


def test_the_main_thread_behind_its_program_has_left():
    leaving = "_shutdown (/usr/lib/python3.11/threading.py:1590)"
    uploader = "wait (threading.py:327)\n_bootstrap (threading.py:1002)"
    suspect = only(
        stack(ALL_REDUCE, 0, 1, 2), stack(uploader, 3, name=""), stack(leaving, 3, name="")
    )
    assert (ranks(suspect.processes), suspect.certainty) == ([3], 1)
    assert suspect.leaf is not None
    assert suspect.leaf.function == "_shutdown"


def test_all_outside_names_nobody():
    suspect = only(stack(DATALOADER, 0, 1), stack(COMPUTE, 2, 3))
    assert (suspect.cause, suspect.processes) == ("outside", ())


def test_all_inside_names_nobody_but_says_whose_stack_is_missing():
    suspect = only(stack(ALL_REDUCE, 0, 1, 2), World(4, Source("a")))
    assert (suspect.cause, suspect.processes, suspect.certainty) == ("unknown", (), 0)
    assert any("no stack of rank 3" in point.text for point in suspect.support)


def test_an_unknown_line_may_be_that_of_any_call_of_its_function():
    unknown, other = ALL_REDUCE.replace("train.py:20", "train.py"), ALL_REDUCE.replace(":20", ":30")
    assert only(stack(ALL_REDUCE, 0, 1), stack(unknown, 2)).rule == "stacks-all-wait"
    suspect = only(stack(ALL_REDUCE, 0), stack(unknown, 1), stack(other, 2))
    assert suspect.rule == "stacks-different-calls"


def test_hosts_in_a_launch_are_victims_of_a_full_queue():
    one = f"cuLaunchKernel (libcuda.so.1)\nlinear (model.py:1)\n{TRAIN}"
    two = f"cuLaunchKernel (libcuda.so.1)\ngelu (model.py:2)\n{TRAIN}"
    suspect = only(stack(one, 0, 1), stack(two, 2, 3))
    assert (suspect.cause, suspect.processes) == ("unknown", ())
    assert any("queue of the GPU" in point.text for point in suspect.support)


def test_a_thread_that_keeps_the_gil_is_told_from_one_that_waits_for_it():
    suspect = only(
        stack(ALL_REDUCE, 0, 1, 2),
        stack("compress (lib/native.so)\nsave (my/io.py:3)", 3, name="writer", id=9, gil=True),
        stack(f"take_gil (libpython3.11.so.1.0)\n{COMPUTE}", 3),
    )
    assert suspect.cause == "gil-held"
    assert ranks(suspect.processes) == [3]
    assert suspect.leaf is not None
    assert suspect.leaf.function == "save"


def test_native_frames_alone_tell_who_waits_for_peers():
    wait = (
        "poll (libc.so.6)\ngloo::transport::tcp::Pair::recv (libtorch_cpu.so)\n"
        "gloo::allreduce (libtorch_cpu.so)\n_start (python3.11)"
    )
    lock = (
        "futex_wait (libc.so.6)\n__lll_lock_wait (libc.so.6)\nfoo (liblib.so)\n_start (python3.11)"
    )
    suspect = only(stack(wait, 0, 1, 2, name=""), stack(lock, 3, name=""))
    assert ranks(suspect.processes) == [3]
    assert suspect.at is not None
    assert suspect.at.op == "all_reduce"


def test_a_stack_that_one_tool_shows_twice_counts_once():
    native = "futex_wait (libc.so.6)\n_start (python3.11)"
    suspect = only(
        stack(ALL_REDUCE, 0, 1, 2),
        stack(DATALOADER, 3),
        *(stack(native, r, look=1, name="") for r in range(4)),
    )
    assert ranks(suspect.processes) == [3]
    assert ranks(suspect.waiting) == [0, 1, 2]


@pytest.mark.needs("samples")
def test_blooms_deadlock_names_the_process_in_the_dataloader(samples, tmp_path):
    chronicle = (samples / "bloom176b" / "tr11-176B-ml_chronicles.md").read_text()
    start = chronicle.index("Node 48:")
    text = chronicle[start : chronicle.index("All were in groups of 4", start)].encode()
    path = tmp_path / "stacks.txt"
    path.write_bytes(text)
    facts = KIND.read([Item("stacks.txt", path, len(text), text)], Notes())
    suspect = only(*facts)
    assert suspect.certainty == 2
    assert [process.pid for process in suspect.processes] == [688514]
    assert suspect.leaf is not None
    assert suspect.leaf.function == "_try_get_data"
    assert suspect.leaf_class == "data"
    assert len(suspect.waiting) == 15
    assert suspect.at is not None
    assert suspect.at.op == "broadcast"
    assert suspect.at.site[0].function == "_build_key_size_numel_dictionaries"
    words = " ".join(point.text for point in suspect.support)
    assert "pids 688515-688517 on Node 48 in broadcast" in words
    assert "pids 686181-686184 on Node 49 in all_reduce" in words
    assert "pids 686185-686188 on Node 49 in recv" in words
    # README shows what the command says of them, its sentence folded into two lines.
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    shown = readme.split("$ oddrank triage stacks.txt\n")[1].split("\n...\n")[0]
    made = report.made(report.judged([Item("stacks.txt", path, len(text), text)], Notes()))
    assert shown.replace(";\n", "; ").splitlines() == [f"triage: {made.verdict}", made.summary]


@pytest.mark.needs("samples")
def test_blooms_list_of_384_ranks_has_one_odd_wait(samples, tmp_path):
    chronicle = (samples / "bloom176b" / "tr11-176B-ml_chronicles.md").read_text()
    start = chronicle.index("here are the 4 unique groups")
    text = chronicle[start : chronicle.index("@DanielHesslow", start)].encode()
    path = tmp_path / "list.txt"
    path.write_bytes(text)
    facts = KIND.read([Item("list.txt", path, len(text), text)], Notes())
    suspect = only(*facts)
    assert [p.host for p in suspect.processes] == ["jean-zay-iam52"]
    assert suspect.leaf is not None
    assert suspect.leaf.function == "wait"
    assert len(suspect.waiting) == 39
    assert suspect.certainty == 1


@pytest.mark.needs("samples")
def test_blooms_whole_chronicle_names_the_process_and_its_later_twin(samples):
    path = samples / "bloom176b" / "tr11-176B-ml_chronicles.md"
    data = path.read_bytes()
    facts = list(KIND.read([Item(path.name, path, len(data), data[: 64 << 10])], Notes()))
    named = {process.pid for suspect in judged(*facts) for process in suspect.processes}
    assert {688514, 1439102} <= named
    assert named <= {688514, 1439102, None}
