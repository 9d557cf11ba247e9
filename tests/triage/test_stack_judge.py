"""Tests whom the stacks of all ranks name: who stands outside while others wait for peers."""

from dataclasses import replace
from pathlib import Path

import pytest

from oddrank.inputs import Notes
from oddrank.triage import report, verdict
from oddrank.triage.evidence.stacks import KIND
from oddrank.triage.facts import (
    Activity,
    Child,
    Frame,
    Group,
    Process,
    Progress,
    Source,
    Stack,
    Thread,
    World,
)
from oddrank.triage.judges import stacks as judges
from oddrank.triage.judges.stands import stands
from oddrank.triage.view import view
from triage.facts_of import facts_of, item_of
from triage.told import check

TRAIN = "train (train.py:40)\nmain (train.py:90)\n<module> (train.py:99)"
C10D = "torch/distributed/distributed_c10d.py"
ALL_REDUCE = f"""all_reduce ({C10D}:3252)
wrapper (torch/distributed/c10d_logger.py:83)
step (train.py:20)
{TRAIN}"""
BARRIER = f"barrier ({C10D}:5356)\nclose (train.py:67)\n{TRAIN}"
NORM, RECV = ALL_REDUCE.replace("step", "norm"), ALL_REDUCE.replace("all_reduce", "recv")
DATALOADER = f"""wait (threading.py:306)
get (queue.py:179)
_try_get_data (torch/utils/data/dataloader.py:1011)
_next_data (torch/utils/data/dataloader.py:1207)
__next__ (torch/utils/data/dataloader.py:530)
{TRAIN}"""
COMPUTE = f"attention (model.py:7)\nforward (model.py:70)\n{TRAIN}"
LOCKED = f"acquire (filelock/_api.py:200)\nbuild (train.py:3)\n{TRAIN}"
CHECKPOINT = f"read (torch/serialization.py:500)\nload (torch/serialization.py:900)\n{TRAIN}"
FETCH = "fetch (torch/utils/data/_utils/fetch.py:52)"
WORKER_LOOP = "_worker_loop (torch/utils/data/_utils/worker.py:349)\n<module> (a.py:1)"
AGENT = (
    "_invoke_run (torch/distributed/elastic/agent/server/api.py:900)\n"
    "launch_agent (torch/distributed/launcher/api.py:255)"
)
FILE = Source("a.txt", 1)


def judge(view):
    return [verdict.explained(suspect, view) for suspect in judges.judge(view)]


def frames(text):
    found = []
    for line in text.splitlines():
        function, _, place = line.rpartition(" (")
        file, _, number = place.rstrip(")").partition(":")
        native = not file.endswith(".py")
        found.append(Frame(function, file, int(number) if number else None, native))
    return tuple(found)


def stack(text, *ranks, **more):
    more = {"name": "MainThread", "source": FILE, **more}
    return Stack(frames(text), tuple(Thread(Process(r), **more) for r in ranks))


def by_pid(text, *pids, state=""):
    threads = (Thread(Process(pid=pid), "MainThread", state=state) for pid in pids)
    return Stack(frames(text), tuple(threads))


def child(pid, parent):
    return Child(Process(pid=pid), parent, FILE)


def looks(*several):
    """Returns what a tool saw in each look: (text, rank, ...) of each stack."""
    return [stack(text, *of, look=n) for n, found in enumerate(several) for text, *of in found]


def ranks(count, but=()):
    return [rank for rank in range(count) if rank not in but]


WAIT = stack(ALL_REDUCE, 0, 1, 2)
IDLE = stack(ALL_REDUCE, 0, 1, 2, state="idle")
OWN = stack(ALL_REDUCE, 0, 1, 3, own=True)


def stuck(*named, certainty=2):
    return "host-stuck", named, certainty


def nobody(cause="unknown"):
    return cause, (), 0


def test_a_rank_outside_is_named_while_others_wait_for_peers(golden):
    waiting = stack(ALL_REDUCE, *ranks(8, but=(2,)))
    data = stack(ALL_REDUCE, *ranks(16, but=(2,)))
    path = f"run (engine.py:9)\n{TRAIN}"
    near = f"broadcast ({C10D}:1)\nbroadcast_data (data.py:5)\nload (engine.py:7)\n{path}"
    there = f"get (queue.py:1)\nnext_batch (engine.py:2)\nload (engine.py:3)\n{path}"
    outer = "main (train.py:90)\n<module> (train.py:99)"
    steps, evaluates = "train (train.py", f"all_reduce ({C10D}:3252)\nevaluate (train.py:7)"
    nap = f"save_checkpoint (train.py:30)\n{TRAIN}"
    download = f"recv_into (ssl.py:1163)\ndownload (train.py:9)\n{TRAIN}"
    native = f"pread64 (libc.so.6)\nread_shard (io.py:4)\nload_checkpoint (io.py:1)\n{TRAIN}"
    uploads = "wait (threading.py:327)\n_bootstrap (threading.py:1002)"
    left = "_shutdown (/usr/lib/python3.11/threading.py:1590)"

    def reads(rank):
        return stack(CHECKPOINT.replace(":500", f":50{rank % 5}"), rank)

    check(golden, {
        "data": ([data, stack(DATALOADER, 2)], stuck(2)),
        "a lock": ([waiting, stack(LOCKED, 2)], stuck(2)),
        "a file": ([waiting, stack(CHECKPOINT, 2)], stuck(2)),
        "the network": ([waiting, stack(download, 2)], stuck(2)),
        "a dataset": ([data, stack(f"__getitem__ (my/dataset.py:4)\n{FETCH}\n{TRAIN}", 2)],
                      stuck(2)),
        "a dataset's function": ([data, stack(f"parse (my/dataset.py:4)\n{FETCH}\n{TRAIN}", 2)],
                                 stuck(2)),
        "a native read": ([waiting, stack(native, 2)], stuck(2)),
        "a name alone does not say that it waits for a file": ([waiting, stack(nap, 2)], stuck(2)),
        "few that wait for many": ([stack(ALL_REDUCE, 0), stack(DATALOADER, *range(1, 32))],
                                   stuck(*range(1, 32), certainty=0)),
        "the call of those who came the same way":
            ([stack(ALL_REDUCE, *range(8)), stack(near, 9, 10), stack(there, 11)],
             stuck(11, certainty=0)),
        "the call of those who came the same way up to another line":
            ([stack(f"{evaluates}\n{outer}", *range(8)),
              stack(f"barrier ({C10D}:1)\n{steps}:40)\n{outer}", 8, 9, 10),
              stack(f"get (queue.py:1)\n{steps}:41)\n{outer}", 11)], stuck(11)),
        "it leaves": ([WAIT, stack(f"destroy_process_group ({C10D}:2100)\n{TRAIN}", 3)],
                      ("finished", (3,), 1)),
        "two leave, by an installation with a telling name":
            ([stack(ALL_REDUCE, 0, 1, 4),
              stack(f"destroy_process_group (/opt/abort/{C10D}:2100)\n{TRAIN}", 2, 3)],
             ("finished", (2, 3), 1)),
        "most leave": ([stack(ALL_REDUCE, 0),
                        stack(f"destroy_process_group ({C10D}:2100)\n{TRAIN}", 1, 2, 3)],
                       ("finished", (0,), 1)),
        "at two lines of a function": ([waiting, reads(2), reads(8)], stuck(2, 8)),
        "at five lines of a function": ([waiting, *map(reads, (2, *range(8, 13)))],
                                        stuck(2, *range(8, 13))),
        "it has left": ([WAIT, stack(uploads, 3, name=""), stack(left, 3, name="")],
                        ("finished", (3,), 1)),
        "two have left": ([stack(ALL_REDUCE, 0, 1, 4), stack(left, 2, 3)],
                          ("finished", (2, 3), 1)),
        "it aborts its groups": ([WAIT, stack(f"_abort_process_group ({C10D}:2150)\n{TRAIN}", 3)],
                                 stuck(3, certainty=1)),
        "all others leave": ([stack(f"destroy_process_group ({C10D}:2100)\n{TRAIN}", 0, 1, 2),
                              stack(nap, 3)], stuck(3, certainty=1)),
    }, judge)  # fmt: skip


def test_how_much_one_look_or_two_tell(golden):
    still = [(ALL_REDUCE, 0, 1, 2), (COMPUTE, 3)]
    computes = {"state": "active+gil", "gil": True}
    flush = f"flush (train.py:9)\n{TRAIN}"
    first = [stack(ALL_REDUCE, 0, 1), stack(flush, 2)]
    second = [replace(s, threads=tuple(replace(t, source=Source("b.txt", 1)) for t in s.threads))
              for s in first]  # fmt: skip
    elsewhere = replace(second[1], frames=frames(flush.replace(":9", ":10")))
    two = [(ALL_REDUCE, 0, 1), (DATALOADER, 2, 3)]
    wait = f"reduce_gradients (train.py:7)\n{TRAIN}"
    late = Progress(Process(0), Group("0", (0, 1, 2)), FILE, enqueued=7, timed_out=True)
    maybe = stuck(3, certainty=0)
    rows = {
        "computes in one look": ([WAIT, stack(COMPUTE, 3, **computes)], ("infinite-loop", (3,), 0)),
        "computes the same in two":
            ([WAIT, stack(ALL_REDUCE, 0, 1, 2, look=1),
              *(stack(COMPUTE, 3, look=n, **computes) for n in (0, 1))],
             ("infinite-loop", (3,), 1)),
        "moves between looks": (looks(still, [(ALL_REDUCE, 0, 1, 2), (CHECKPOINT, 3)]),
                                ("moving", (3,), 0)),
        "few wait in one look": (looks(two), stuck(2, 3, certainty=0)),
        "few wait in two": (looks(two, two), stuck(2, 3)),
        "two looks at a lock": (looks(*[[(ALL_REDUCE, 0, 1, 2), (LOCKED, 3)]] * 2), stuck(3)),
        "one look at a lock": ([WAIT, stack(LOCKED, 3)], stuck(3, certainty=1)),
        "others are on their way":
            ([stack(ALL_REDUCE, 0, 1), stack(COMPUTE, 2), stack(DATALOADER, 3)],
             stuck(3, certainty=0)),
        "one tool": (first, stuck(2, certainty=0)),
        "two tools": ([*first, *second], stuck(2, certainty=1)),
        "two tools, at another line": ([*first, second[0], elsewhere], stuck(2, certainty=0)),
        "seven in a function named after communication":
            ([stack(wait, *range(7), state="idle"), stack(LOCKED, 7)], stuck(7, certainty=1)),
        "two in such a function": ([stack(wait, 0, 1, state="idle"), stack(DATALOADER, 2)],
                                   stuck(2, certainty=0)),
        "two in such a function, and the others in a call":
            ([stack(wait, 0, 1, state="idle"), stack(ALL_REDUCE, 2, 3)], nobody()),
        "three at rest, and one reads": ([IDLE, stack(CHECKPOINT, 3, state="idle")],
                                         stuck(3, certainty=1)),
        # Healthy jobs wait for data all the time.
        "three at rest, one waits for data": ([IDLE, stack(DATALOADER, 3, state="idle")], maybe),
        "seven wait, and one waits for data": ([stack(ALL_REDUCE, *range(7)), stack(DATALOADER, 7)],
                                               stuck(7, certainty=0)),
        "no rank had an event for long":
            ([*first, *(Activity(Process(r), FILE, 100.0, seen=140.0) for r in range(3))],
             stuck(2, certainty=1)),
        "calls have timed out": ([stack(ALL_REDUCE, 0, 1), stack(COMPUTE, 2), late],
                                 stuck(2, certainty=1)),
    }  # fmt: skip
    for name, others in {
        "one of few is active": [stack(ALL_REDUCE, 0, 1, state="idle"),
                                 stack(ALL_REDUCE, 2, state="active")],
        "few in two calls": [stack(ALL_REDUCE, 0, 1), stack(NORM, 2)],
        "few in a message": [stack(RECV, 0, 1, 2)],
        "few, and one computes": [WAIT, stack(COMPUTE, 4)],
        "two": [stack(ALL_REDUCE, 0, 1)],
    }.items():  # fmt: skip
        rows[name] = [*others, stack(CHECKPOINT, 3)], maybe
    check(golden, rows, judge)


def test_the_thread_and_the_process_that_count(golden):
    backward = f"backward (torch/autograd/__init__.py:266)\nbackward (torch/_t.py:522)\n{TRAIN}"
    gather = (
        f"all_gather_into_tensor ({C10D}:2709)\n"
        "all_gather_into_tensor (deepspeed/comm/torch.py:219)\n"
        "log_wrapper (deepspeed/comm/comm.py:117)\n"
        "fetch_sub_module (deepspeed/runtime/zero/partitioned_param_coordinator.py:317)"
    )
    monitor = "wait (threading.py:324)\nrun (tqdm/_monitor.py:60)"
    executor = "get (queue.py:171)\n_worker (concurrent/futures/thread.py:81)"
    reading = "read (my/dataset.py:4)\n_worker_loop (torch/utils/data/_utils/worker.py:349)"
    tokenizing = f"recv_into (ssl.py:1163)\ntokenize (my/text.py:9)\n{TRAIN}"
    of_gloo = (
        "poll (libc.so.6)\ngloo::transport::tcp::Pair::recv (libtorch_cpu.so)\n"
        "gloo::allreduce (libtorch_cpu.so)\n_start (python3.11)"
    )
    futex = "futex_wait (libc.so.6)\n__lll_lock_wait (libc.so.6)\nf (lib.so)\n_start (python3.11)"
    in_c = "futex_wait (libc.so.6)\n_start (python3.11)"
    launch = "cuLaunchKernel (libcuda.so.1)\n{}\n" + TRAIN
    device = stack(f"read_device (train.py:1)\n{TRAIN}", 3, state="idle+gil", gil=True)
    compresses = "compress (lib/native.so)\nsave (my/io.py:3)"
    outside = stuck(3, certainty=0)
    check(golden, {
        "the autograd thread's call, not the main thread that waits for it":
            ([stack(backward, 0, 1, 2), stack(gather, 0, 1, 2, name="", id=4079),
              stack("", 0, 1, 2, name="", id=4080), stack(monitor, 0, 1, 2, 3, name="Thread-1"),
              stack(DATALOADER, 3)], outside),
        "helper threads are no evidence":
            ([WAIT, stack(executor, 0, 1, 2, name="ThreadPoolExecutor-0_0", id=5),
              stack("poll (libc.so.6)\nncclProxyProgress (libnccl.so.2)", 0, 1, 2, name="", id=6),
              stack("do_one_step (torch/utils/data/_utils/pin_memory.py:32)", 0, 1, 2,
                    name="Thread-2 (_pin_memory_loop)", id=7)], nobody()),
        "workers of dataloaders and launchers are no ranks":
            ([WAIT, stack(DATALOADER, 3), by_pid(f"pread (libc.so.6)\n{WORKER_LOOP}", 77),
              by_pid(AGENT, 78)], outside),
        "what a rank's child does":
            ([WAIT, stack(DATALOADER, 3), by_pid(reading, 77), child(77, Process(0)),
              by_pid(tokenizing, 79), child(79, Process(3))], outside),
        "a rank's child that is stopped":
            ([WAIT, stack(DATALOADER, 3), by_pid(tokenizing, 78), child(78, Process(3)),
              by_pid(reading, 79, state="stopped"), child(79, Process(3))], outside),
        "the thread that trains, not the main one that looks after it":
            ([WAIT, stack("main (train.py:90)", 3), stack("ticks (log.py:3)", 3, name="T1", id=5),
              stack("save (train.py:9)", 3, name="T2", id=6, trains=True)], outside),
        "the children of a launcher are ranks":
            ([by_pid(AGENT, 1), *(child(10 + r, Process(pid=1)) for r in range(4)),
              by_pid(ALL_REDUCE, 10, 11, 12), by_pid(DATALOADER, 13)], stuck(None, certainty=0)),
        "a thread that sleeps with the gil": ([WAIT, device], ("gil-held", (3,), 1)),
        "a thread that keeps the gil from another":
            ([WAIT, stack(compresses, 3, name="writer", id=9, gil=True),
              stack(f"take_gil (libpython3.11.so.1.0)\n{COMPUTE}", 3)], ("gil-held", (3,), 1)),
        "frames of C alone": ([stack(of_gloo, 0, 1, 2, name=""), stack(futex, 3, name="")],
                              stuck(3, certainty=1)),
        "a stack that one tool shows twice":
            ([WAIT, stack(DATALOADER, 3), *(stack(in_c, r, look=1, name="") for r in range(4))],
             outside),
        "hosts in a launch are victims of a full queue":
            ([stack(launch.format("linear (model.py:1)"), 0, 1),
              stack(launch.format("gelu (model.py:2)"), 2, 3)], nobody()),
    }, judge)  # fmt: skip


def test_a_thread_without_code_of_its_own_takes_no_place_of_the_line_that_joins_it():
    lib = "/usr/lib/python3.11/threading.py"
    joins = stack(f"Thread.join ({lib}:1119)\nload (train.py:8)\n{TRAIN}", 3)
    (stand,), _ = stands([joins, stack(f"Thread.run ({lib}:982)", 3, name="T-1", id=9)])
    assert stand.leaf.frame == Frame("load", "train.py", 8)


def test_the_kernel_says_what_a_rank_waits_for(golden):
    waiting = stack(ALL_REDUCE, *ranks(8, but=(2,)))
    own = f"prepare (train.py:30)\n{TRAIN}"
    by_name = own.replace("prepare", "wait_for_it")
    started = f"_try_wait (/usr/lib/python3.11/subprocess.py:2000)\n{own}"
    loops = "loop (train.py:33)\n_bootstrap (threading.py:1002)"
    works = f"get (queue.py:179)\n{loops}"

    def asleep(text, function, **more):
        return stack(text, 2, state=f"asleep in {function}", **more)

    lock = asleep(own, "futex_do_wait")
    check(golden, {
        "a lock": ([waiting, lock], stuck(2, certainty=0)),
        "locks, in two threads":
            ([waiting, lock, asleep(loops, "futex_wait_queue", name="other", id=9)],
             ("deadlock", (2,), 0)),
        "a lock, while another thread waits for work":
            ([waiting, lock, asleep(works, "futex_wait_queue", name="other", id=9)],
             stuck(2, certainty=0)),
        "a process": ([waiting, asleep(started, "do_wait")], stuck(2)),
        "a process's output":
            ([waiting, asleep(f"select (selectors.py:415)\n{started}", "do_poll")], stuck(2)),
        "an event loop, in which there is no lock":
            ([waiting, asleep(f"select (selectors.py:468)\n{own}", "do_epoll_wait")], stuck(2)),
        "the lock of a file": ([waiting, asleep(own, "flock_lock_inode_wait")], stuck(2)),
        "a pipe, whatever the function is called":
            ([waiting, asleep(by_name, "anon_pipe_read")], stuck(2)),
        "peers, perhaps": ([waiting, asleep(by_name, "futex_do_wait")], nobody()),
        "time": ([waiting, asleep(own, "hrtimer_nanosleep")], stuck(2, certainty=0)),
        "all, the lock of a file": ([stack(LOCKED, 0, 1, 2)], stuck(0, 1, 2, certainty=1)),
    }, judge)  # fmt: skip


def test_where_all_wait_or_none_does(golden):
    unknown, other = ALL_REDUCE.replace(":20", ""), ALL_REDUCE.replace(":20", ":30")
    silent, slept = ("not-entered-or-inside", (2,), 1), COMPUTE.replace(":7", ":5")
    check(golden, {
        "two calls": ([stack(ALL_REDUCE, 0, 1, 3), stack(BARRIER, 2)], nobody()),
        "one call at two lines": ([stack(ALL_REDUCE, 0, 1), stack(other, 2)], nobody()),
        "a line that is not known": ([stack(ALL_REDUCE, 0, 1), stack(unknown, 2)], nobody()),
        "a line that is not known, and another":
            ([stack(ALL_REDUCE, 0), stack(unknown, 1), stack(other, 2)], nobody()),
        "two calls, of which one has no lines":
            ([stack(BARRIER, 0), stack(unknown, 1), stack(ALL_REDUCE, 2)], nobody()),
        "the only one sleeps with the gil":
            ([stack(f"read_device (train.py:1)\n{TRAIN}", 3, state="idle+gil", gil=True)],
             nobody("outside")),
        "none waits": ([stack(DATALOADER, 0, 1), stack(COMPUTE, 2, 3)], nobody("outside")),
        "none waits, at lines of one function, and one has no line":
            ([stack(COMPUTE, 0, 3), stack(slept, 1), stack(COMPUTE.replace(":7", ""), 2)],
             nobody("outside")),
        "none waits, at many lines of one function":
            ([stack(COMPUTE.replace(":7", f":{20 + r}"), r) for r in range(10)],
             nobody("outside")),
        "one stack is missing": ([WAIT, World(4, Source("a"))], nobody()),
        "the only one that wrote no dump of itself": ([OWN], silent),
        "and another tool looked at it": ([OWN, stack(NORM, 2)], silent),
        "of more that wrote none": ([OWN, World(8, Source("a"))], nobody()),
        "somebody else looked at them": ([stack(ALL_REDUCE, 0, 1, 3)], nobody()),
    }, judge)  # fmt: skip


@pytest.mark.needs("samples")
def test_blooms_deadlock_names_the_process_in_the_dataloader(samples, tmp_path, golden):
    chronicle = (samples / "bloom176b" / "tr11-176B-ml_chronicles.md").read_text()

    def part(name, begin, end):
        start = chronicle.index(begin)
        (tmp_path / name).write_text(chronicle[start : chronicle.index(end, start)])
        return tmp_path / name

    stacks = part("stacks.txt", "Node 48:", "All were in groups of 4")
    list_ = part("list.txt", "here are the 4 unique groups", "@DanielHesslow")
    check(golden, {
        "one of 16": (facts_of(KIND, stacks), stuck(None)),
        "a list of 384": (facts_of(KIND, list_), stuck(None, certainty=1)),
    }, judge)  # fmt: skip
    # README shows what the command says of them, its sentence folded into two lines.
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    shown = readme.split("$ oddrank triage stacks.txt\n")[1].split("\n...\n")[0]
    made = report.made(report.judged([item_of(stacks)], Notes()))
    assert shown.replace(";\n", "; ").splitlines() == [f"triage: {made.verdict}", made.summary]


@pytest.mark.needs("samples")
def test_blooms_whole_chronicle_names_the_process_and_its_later_twin(samples):
    facts = facts_of(KIND, samples / "bloom176b" / "tr11-176B-ml_chronicles.md")
    named = {process.pid for suspect in judge(view(facts)) for process in suspect.processes}
    assert {688514, 1439102} <= named
    assert named <= {688514, 1439102, None}
