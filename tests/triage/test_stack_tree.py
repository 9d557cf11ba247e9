"""Tests the text of --tree: what is common once, and who stands where."""

from oddrank import _native
from oddrank.triage.facts import Frame, Process, Stack, Thread
from oddrank.triage.tree import lines

C10D = "/usr/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
TRAIN = (Frame("train", "train.py", 4), Frame("<module>", "train.py", 9))


def stack(*frames: Frame, ranks: list[int], name: str = "MainThread") -> Stack:
    return Stack((*frames, *TRAIN), tuple(Thread(Process(rank), name) for rank in ranks))


def test_common_frames_come_once_and_libraries_are_cut_to_the_call():
    shown = list(
        lines(
            [
                stack(
                    Frame("c10d::Work::wait", "libtorch_cpu.so", native=True),
                    Frame("all_reduce", C10D, 3),
                    ranks=[0, 1, 2, 5],
                ),
                stack(Frame("get", "queue.py", 1), Frame("load", "train.py", 7), ranks=[3]),
                stack(Frame("_feed", "multiprocessing/queues.py", 2), ranks=[3], name="Feeder-12"),
            ]
        )
    )
    assert shown == [
        "stacks of 5 processes",
        "ranks 0-3,5 (5): <module> (train.py:9) > train (train.py:4)",
        "  rank 3: load (train.py:7) > get (queue.py:1) [waits for a lock]",
        "  ranks 0-2,5 (4): all_reduce (torch/distributed/distributed_c10d.py:3) [waits for peers]",
        "left out: 1 threads without frames of Python or that wait for work",
    ]


def test_processes_without_ranks_are_named_by_pids_or_by_a_legend():
    pids = Stack(TRAIN, tuple(Thread(Process(None, "a", pid)) for pid in (10, 11, 13)))
    assert next(iter(list(lines([pids]))[1:])).startswith("pids 10-11,13 (3): ")
    same = Stack(TRAIN, tuple(Thread(Process(None, host, 10)) for host in ("a", "b")))
    assert list(lines([same]))[-2:] == ["process 0: pid 10 on a", "process 1: pid 10 on b"]


def test_long_chains_are_shortened_and_deep_stacks_are_read():
    deep = Stack(tuple(Frame(f"f{i}", "a.py", i) for i in range(1, 3000)), (Thread(Process(0)),))
    _, line = lines([deep])
    assert "... 2994 frames ..." in line
    assert line.endswith("f1 (a.py:1)")


def test_the_rarest_branch_comes_first():
    rows = _native.core().stack_tree([(["m", "a"], [1, 2, 2, 3]), (["m", "b"], [0]), (["m"], [9])])
    assert rows == [
        (0, ["m"], "0-3,9", 5),
        (1, ["b"], "0", 1),
        (1, ["a"], "1-3", 3),
    ]
