"""Tests the text of --tree: what is common once, and who stands where."""

from oddrank.triage import tree
from oddrank.triage.facts import Frame, Process, Stack, Thread

C10D = "/usr/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
TRAIN = (Frame("train", "train.py", 4), Frame("<module>", "train.py", 9))
HELPER = Frame("_feed", "multiprocessing/queues.py", 2)


def stack(*frames, ranks=(), name="MainThread", of=()):
    who = [*map(Process, ranks), *(Process(None, host, pid) for host, pid in of)]
    return Stack((*frames, *TRAIN), tuple(Thread(process, name) for process in who))


def test_common_frames_come_once_and_processes_are_named_as_far_as_they_are_known(golden):
    wait = Frame("c10d::Work::wait", "libtorch_cpu.so", native=True)
    rows = {
        "cut to the call": [
            stack(wait, Frame("all_reduce", C10D, 3), ranks=[0, 1, 2, 5]),
            stack(Frame("get", "queue.py", 1), Frame("load", "train.py", 7), ranks=[3]),
            stack(HELPER, ranks=[3], name="Feeder-12"),
            stack(ranks=[3], name="loader-7"),
        ],
        "pids": [stack(of=[("a", 10), ("a", 11), ("a", 13)])],
        "one pid on two hosts": [stack(of=[("a", 10), ("b", 10)])],
        "labels": [Stack(TRAIN, (Thread(Process(label="stack 2 of trace-a")),))],
        "deep": [Stack(tuple(Frame(f"f{i}", "a.py", i) for i in range(1, 3000)),
                       (Thread(Process(0)),))],
        "helpers": [Stack((HELPER,), (Thread(Process(0), "Feeder"),))],
    }  # fmt: skip
    golden("\n".join(line for name, stacks in rows.items() for line in (name, *tree.lines(stacks))))


def test_the_rarest_branch_comes_first():
    found = [*tree.rows({("m", "a"): {1, 2, 3}, ("m", "b"): {0}, ("m",): {9}})]
    assert found == [(0, ("m",), {0, 1, 2, 3, 9}), (1, ("b",), {0}), (1, ("a",), {1, 2, 3})]
