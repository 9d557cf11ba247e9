"""Tests that stacks of all tools become facts, with the right process, host and thread."""

from pathlib import Path

import pytest

from oddrank.triage.evidence import Item, Notes
from oddrank.triage.evidence.stacks import KIND, tracebacks
from oddrank.triage.facts import Child, Fact, Identity, Process, Stack, Thread


def item(path: Path, text: str | bytes, name: str = "") -> Item:
    data = text.encode() if isinstance(text, str) else text
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return Item(name or path.name, path, len(data), data[: 64 << 10])


def read(tmp_path: Path, **files: str) -> list[Fact]:
    items = [item(tmp_path / f"{name}.txt", text) for name, text in files.items()]
    notes = Notes()
    assert all(KIND.sniff(one) for one in items)
    facts = list(KIND.read(items, notes))
    assert not notes.lines
    return facts


def threads(facts: list[Fact]) -> dict[Thread, Stack]:
    return {t: fact for fact in facts if isinstance(fact, Stack) for t in fact.threads}


def only(facts: list[Fact]) -> tuple[Thread, Stack]:
    ((thread, stack),) = threads(facts).items()
    return thread, stack


def functions(stack: Stack) -> list[str]:
    return [frame.function for frame in stack.frames]


PY_SPY = """\
Process 4711: python train.py --layers 3
Python v3.11.7 (/usr/bin/python3.11)

Thread 4711 (idle): "MainThread"
    Condition.wait (threading.py:327)
        Arguments:
            self: <Condition at 0x7f22d4968650>
    Queue.get (queue.py:171)
    <module> (train.py:11)
Thread 4790 (active+gil): "loader (1)"
    0x7f22f5ca4d90 (libc.so.6)
    std::map<int (*)(int), long>::find (libfoo.so)
    run (<string>:3)
"""


def test_py_spy_names_process_threads_and_frames(tmp_path):
    facts = read(tmp_path, a=PY_SPY)
    found = {thread.name: (thread, stack) for thread, stack in threads(facts).items()}
    main, stack = found["MainThread"]
    assert main.process == Process(None, None, 4711)
    assert (main.id, main.state, main.gil, main.source.line) == (4711, "idle", False, 4)
    assert functions(stack) == ["Condition.wait", "Queue.get", "<module>"]
    assert (stack.frames[1].file, stack.frames[1].line) == ("queue.py", 171)
    loader, stack = found["loader (1)"]
    assert loader.gil is True
    assert [frame.native for frame in stack.frames] == [True, True, False]
    assert stack.frames[1].function == "std::map<int (*)(int), long>::find"
    assert stack.frames[2].file == "<string>"


def test_py_spys_text_of_several_nodes_has_the_node_of_each_line(tmp_path):
    """As examples/slurm/stacks.sh prints it: equal pids on two nodes are two processes."""
    both = "".join(f"node{i}: {line}\n" for i in (0, 1) for line in PY_SPY.splitlines())
    mains = [t.process for t in threads(read(tmp_path, a=both)) if t.name == "MainThread"]
    assert mains == [Process(None, "node0", 4711), Process(None, "node1", 4711)]


def test_py_spys_subprocesses_are_children_of_the_rank_of_the_file(tmp_path):
    def dump(pid, parent, frame):
        more = f"Parent Process {parent}: python train.py\n" if parent else ""
        head = f"Process {pid}: python train.py\nPython v3.11.7 (/usr/bin/python3.11)\n{more}\n"
        return (
            f'{head}Thread {pid} (idle): "MainThread"\n    {frame}\n    <module> (train.py:9)\n\n'
        )

    text = dump(70, 0, "get (queue.py:1)") + "-" * 80 + "\n" + dump(77, 70, "read (data.py:4)")
    found = read(tmp_path, rank3=text)
    assert {thread.process for thread in threads(found)} == {
        Process(3, None, 70),
        Process(None, None, 77),
    }
    (child,) = (fact for fact in found if isinstance(fact, Child))
    assert (child.process, child.parent) == (Process(None, None, 77), Process(3, None, 70))


def test_several_main_threads_above_one_stack_are_several_processes(tmp_path):
    text = """Node 7:

```
Thread 10 (active): "MainThread"
Thread 11 (active): "MainThread"
    all_reduce (torch/distributed/distributed_c10d.py:1316)
    main (train.py:5)
```
and one in
```
Thread 12 (idle): "MainThread"
    get (queue.py:179)
```
Node 8
Thread 10 (active): "MainThread"
    all_reduce (torch/distributed/distributed_c10d.py:1316)
    main (train.py:5)
"""
    facts = read(tmp_path, a=text)
    assert {thread.process for thread in threads(facts)} == {
        Process(None, "Node 7", 10),
        Process(None, "Node 7", 11),
        Process(None, "Node 7", 12),
        Process(None, "Node 8", 10),
    }
    assert sorted(len(f.threads) for f in facts if isinstance(f, Stack)) == [1, 3]


def test_heads_without_a_stack_are_threads_without_frames(tmp_path):
    text = """Thread 42 (idle): "MainThread"
    backward (torch/autograd/__init__.py:266)
Thread 4076 (idle)
Thread 4077 (idle)
Thread 4079 (active)
    all_gather_into_tensor (torch/distributed/distributed_c10d.py:2709)
"""
    facts = read(tmp_path, a=text)
    frames = {thread.id: functions(stack) for thread, stack in threads(facts).items()}
    assert frames == {
        42: ["backward"], 4076: [], 4077: [], 4079: ["all_gather_into_tensor"],
    }  # fmt: skip
    assert {thread.process.pid for thread in threads(facts)} == {42}


FAULTHANDLER = """\
Timeout (0:00:08)!
Thread 0x00007f22f63c0b80 [loader] (most recent call first):
  File "/usr/lib/python3.11/queue.py", line 171 in get

Current thread 0x00007f22f63c0b81 (most recent call first):

  File "/a b/job.py", line 8 in load

  File "/a b/job.py", line 11 in <module>
"""


def test_faulthandler_belongs_to_the_rank_of_its_file(tmp_path):
    facts = read(tmp_path, rank3=FAULTHANDLER + FAULTHANDLER)
    found = threads(facts)
    assert {t.process for t in found} == {Process(3)}
    assert sorted((t.name, t.look, t.timed_out) for t in found) == [
        ("", 0, True), ("", 1, True), ("loader", 0, True), ("loader", 1, True),
    ]  # fmt: skip
    main = next(stack for thread, stack in found.items() if not thread.name)
    assert functions(main) == ["load", "<module>"]
    assert main.frames[0].file == "/a b/job.py"


@pytest.mark.parametrize(
    ("prefix", "process"),
    [
        ("[rank12]: ", Process(12)),
        ("12: ", Process(12)),
        ("> ", Process(None, None, None, "a.txt")),
        ("(Worker[rank=12] pid=7, ip=10.0.0.1) ", Process(12, "10.0.0.1", 7)),
        ("node48: ", Process(None, "node48", None, "node48")),
    ],
)
def test_a_launchers_prefix_says_whose_stack_it_is(tmp_path, prefix, process):
    text = "".join(f"{prefix}{line}\n" for line in FAULTHANDLER.splitlines())
    if prefix == "[rank12]: ":  # two ranks at once
        text = "".join(
            line + line.replace("rank12", "rank13") for line in text.splitlines(keepends=True)
        )
    found = threads(read(tmp_path, a=text))
    assert {functions(stack)[-1] for stack in found.values()} == {"get", "<module>"}
    expected = {process, Process(13)} if prefix == "[rank12]: " else {process}
    assert {t.process for t in found} == expected


def test_gdb_names_the_process_by_its_main_thread(tmp_path):
    text = """\
(gdb) thread apply all bt

Thread 3 (Thread 0x7f55 (LWP 3514) "pt_gloo"):
#0  __futex_abstimed_wait (private=0, op=393) at ./nptl/futex-internal.c:57
#1  0x00007f01 in std::function<void (int)>::operator()(int) const (this=0x0, name="a (b) c")
    at /usr/include/std_function.h:590
#2  0x00007f02 in ?? () from /lib/libtorch_cpu.so

Thread 1 (Thread 0x7f56 (LWP 3511)):
#0  __lll_lock_wait () at lowlevellock.S:136
#1  0x00007f03 in ncclGroupEnd ()
   from /usr/lib/libnccl.so.2

Thread 2 (Thread 0x7f57 (LWP 3601)):
#0  0x00007f04 in poll () from /lib/libc.so.6
Thread 1 (Thread 0x7f58 (LWP 3600))
#0  0x00007f05 in clock_nanosleep () from /lib/libc.so.6
"""
    found = {
        thread.id: (thread, stack) for thread, stack in threads(read(tmp_path, a=text)).items()
    }
    assert {id: thread.process.pid for id, (thread, _) in found.items()} == {
        3514: 3511, 3511: 3511, 3601: 3600, 3600: 3600,
    }  # fmt: skip
    gloo, stack = found[3514]
    assert gloo.name == "pt_gloo"
    assert functions(stack) == [
        "__futex_abstimed_wait", "std::function<void (int)>::operator()(int) const", "??",
    ]  # fmt: skip
    assert stack.frames[1].file == "/usr/include/std_function.h"
    assert stack.frames[2].file == "libtorch_cpu.so"
    assert found[3511][1].frames[1].file == "libnccl.so.2"


def test_gdbs_frames_of_python_replace_those_of_c(tmp_path):
    text = """\
Thread 1 (Thread 0x7f56 (LWP 3511) "python"):
#0  0x00007f03 in futex_wait () from /lib/libc.so.6
Traceback (most recent call first):
  <built-in method acquire of _thread.lock object at remote 0x7f>
  File "/usr/lib/python3.11/threading.py", line 327, in wait
    waiter.acquire()
  File "train.py", line 3, in <module>
    q.get()
"""
    thread, stack = only(read(tmp_path, a=text))
    assert thread.process.pid == 3511
    assert functions(stack) == ["wait", "<module>"]


def test_pystack_says_who_holds_the_gil(tmp_path):
    text = """\
Traceback for thread 9293 (python) [Has the GIL] (most recent call last):
    (Python) File "/tmp/job.py", line 12, in <module>
        dist.all_reduce(t)
      Locals:
        func: <cell at 0x7f15b41b5090>
    (C) File "???", line 0, in c10d::Work::wait(long) (inlined) (/lib/libtorch_cpu.so)

Traceback for thread 9299 (worker) [Waiting for the GIL] (most recent call last):
    (Python) File "/tmp/job.py", line 3, in spin
"""
    found = {
        thread.id: (thread, stack) for thread, stack in threads(read(tmp_path, a=text)).items()
    }
    main, stack = found[9293]
    assert main.gil is True
    assert functions(stack) == ["c10d::Work::wait(long)", "<module>"]
    assert stack.frames[0].file == "/lib/libtorch_cpu.so"
    assert found[9299][0].state == "waits for the GIL"
    assert {thread.process.pid for thread, _ in found.values()} == {9293}


def test_the_debug_servers_dump_names_ranks_and_hosts(tmp_path):
    text = """PARTIAL DATA: 2/3 workers responded
=== Rank 0: http://node1:4000 ===
Thread 0x00007f22f63c0b80 (most recent call first):
  File "job.py", line 8 in load
=== Rank 2: http://node2:4001 ===
Thread 0x00007f22f63c0b80 (most recent call first):
  File "job.py", line 8 in load
"""
    found = threads(read(tmp_path, a=text))
    assert {thread.process.rank for thread in found} == {0, 2}


def test_lists_of_innermost_functions_are_stacks_of_one_frame(tmp_path):
    text = """
trace-node03
    broadcast
    broadcast
trace-node04
    all_reduce
    wait
    all_reduce
"""
    found = threads(read(tmp_path, a=text))
    assert len(found) == 5
    odd = [thread for thread, stack in found.items() if functions(stack) == ["wait"]]
    assert [thread.process for thread in odd] == [
        Process(None, "node04", None, "stack 2 of trace-node04")
    ]


def test_words_in_prose_are_no_stacks(tmp_path):
    assert not KIND.sniff(item(tmp_path / "a.md", "shopping:\n  apples\n  broadcast\n"))
    mixed = "list\n  apples\n  pears\n" + PY_SPY
    assert len(threads(read(tmp_path, a=mixed))) == 2


def test_a_rank_and_its_pid_become_one_identity(tmp_path):
    facts = read(tmp_path, node7_rank12=PY_SPY)
    (identity,) = [fact for fact in facts if isinstance(fact, Identity)]
    assert (identity.process.rank, identity.process.pid) == (12, 4711)


def test_a_crash_is_no_stack_but_an_abort_shows_where_a_rank_stood(tmp_path):
    dump = "Fatal Python error: {}\n\n" + FAULTHANDLER.partition("\n")[2]
    crashed = item(tmp_path / "rank0.txt", dump.format("Segmentation fault"))
    aborted = item(tmp_path / "rank1.txt", dump.format("Aborted"))
    facts = list(KIND.read([crashed, aborted], Notes()))
    assert {thread.process.rank for thread in threads(facts)} == {1}


def test_tracebacks_come_with_frames_and_last_line():
    text = b"""\
noise
[rank1]: Traceback (most recent call last):
[rank1]:   File "a.py", line 3, in <module>
[rank1]:     f(
[rank1]:     ^^
[rank1]:   File "b.py", line 9, in f
[rank1]:   [Previous line repeated 97 more times]
[rank1]: ValueError: too (small)

[rank1]: During handling of the above exception, another exception occurred:

[rank1]: Traceback (most recent call last):
[rank1]:   File "a.py", line 5, in <module>
[rank1]: RuntimeError
"""
    first, second = tracebacks(text)
    assert (first.kind, first.link, first.text, first.line) == (
        "exception", "", "ValueError: too (small)", 2,
    )  # fmt: skip
    assert [(f.function, f.file, f.line) for f in first.frames] == [
        ("f", "b.py", 9), ("<module>", "a.py", 3),
    ]  # fmt: skip
    assert (second.link, second.text, second.process) == ("context", "RuntimeError", Process(1))


def test_groups_of_exceptions_come_apart():
    text = b"""\
  + Exception Group Traceback (most recent call last):
  |   File "a.py", line 6, in <module>
  |     f()
  | ExceptionGroup: several (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "a.py", line 3, in f
    | ValueError: one
    +---------------- 2 ----------------
    | TypeError: two
    +------------------------------------
"""
    group, member = tracebacks(text)
    assert group.text == "ExceptionGroup: several (2 sub-exceptions)"
    assert (member.text, member.link) == ("ValueError: one", "member")


def test_a_c_plus_plus_exception_comes_with_its_frames():
    text = b"""\
[default3]:terminate called after throwing an instance of 'c10::CUDAError'
[default3]:  what():  CUDA error: unknown error
[default3]:Exception raised from query at ../aten/cuda/CUDAEvent.h:95 (most recent call first):
[default3]:frame #0: c10::Error::Error(c10::SourceLocation) + 0x42 (0x15 in /lib/libc10.so)
[default3]:frame #1: <unknown function> + 0x814a (0x1519 in /lib64/libpthread.so.0)
other
"""
    (error,) = tracebacks(text)
    assert (error.kind, error.text) == ("native", "c10::CUDAError: CUDA error: unknown error")
    assert [(f.function, f.file) for f in error.frames] == [
        ("query", "../aten/cuda/CUDAEvent.h"),
        ("c10::Error::Error(c10::SourceLocation)", "libc10.so"),
        ("<unknown function>", "libpthread.so.0"),
    ]
    assert error.frames[0].line == 95


@pytest.mark.needs("samples")
def test_the_chronicle_of_bloom_has_all_stacks(samples):
    path = samples / "bloom176b" / "tr11-176B-ml_chronicles.md"
    data = path.read_bytes()
    facts = list(KIND.read([Item(path.name, path, len(data), data[: 64 << 10])], Notes()))
    found = threads(facts)
    pids = {thread.process.pid for thread in found} - {None}
    assert len(pids) == 17
    listed = [t for t in found if t.process.label]
    assert len(listed) == 8 + 8 + 8 + 16


def test_colours_inside_lines_are_no_part_of_them(tmp_path):
    text = (
        'Thread \x1b[1m4711\x1b[0m (idle): "MainThread"\n'
        "    \x1b[32mwait\x1b[0m (\x1b[36mthreading.py\x1b[0m:\x1b[2m327\x1b[0m)\n"
        "    \x1b]8;;file:///a\x1b\\run\x1b]8;;\a (train.py:1)\n"
    )
    _, stack = only(read(tmp_path, a=text))
    assert [(f.function, f.file, f.line) for f in stack.frames] == [
        ("wait", "threading.py", 327), ("run", "train.py", 1)
    ]  # fmt: skip
    (error,) = tracebacks(
        b"Traceback (most recent call last):\n"
        b'  File \x1b[35m"/a/t.py"\x1b[0m, line \x1b[35m3\x1b[0m, in \x1b[35m<module>\x1b[0m\n'
        b"\x1b[1;35mValueError\x1b[0m: \x1b[35mx\x1b[0m\n"
    )
    assert error.text == "ValueError: x"
    assert [(f.file, f.line) for f in error.frames] == [("/a/t.py", 3)]


@pytest.mark.parametrize(
    "prose",
    ["PID 4242 exited cleanly, as it should", "Process 3: reward 0.5", "Process 3: x\nstep 4"],
)
def test_prose_is_no_head_of_a_process(tmp_path, prose):
    text = f'{prose}\nstep 5\nThread 0x7f01 (idle): "MainThread"\n    wait (threading.py:327)\n'
    thread, _ = only(read(tmp_path, a=text))
    assert thread.process.pid is None


@pytest.mark.parametrize(
    ("frame", "function", "file", "line"),
    [
        ("f (/opt/a(1)/t.py:3)", "f", "/opt/a(1)/t.py", 3),
        ("f (/opt/a (1)/t.py:3)", "f", "/opt/a (1)/t.py", 3),
        ("std::map<int (*)(int), long>::find (a.so)", "std::map<int (*)(int), long>::find", "a.so",
         None),
    ],
)  # fmt: skip
def test_brackets_in_a_path_end_no_stack(tmp_path, frame, function, file, line):
    text = f'Thread 1 (idle): "MainThread"\n    {frame}\n    run (train.py:1)\n'
    _, stack = only(read(tmp_path, a=text))
    assert [(f.function, f.file, f.line) for f in stack.frames] == [
        (function, file, line), ("run", "train.py", 1)
    ]  # fmt: skip


def test_lines_of_several_c_plus_plus_exceptions_are_not_joined():
    head = b"terminate called after throwing an instance of 'E'\n"
    frames = (
        b"Exception raised from f at a.cpp:1 (most recent call first):\n"
        b"frame #0: g() + 0x1 (0x7f in /l.so)\n"
    )
    (error,) = tracebacks(head + head + b"  what():  a\n  what():  b\n" + frames)
    assert error.text == "E: b"


def test_a_repeated_line_costs_no_memory_beyond_its_length(tmp_path):
    """Each used to be stored with all before it: 100 MB for these."""
    text = "what(): x\n" * 20_000 + 'Thread 1 (idle): "MainThread"\n    run (train.py:1)\n'
    assert len(threads(read(tmp_path, a=text))) == 1
    ids = "".join(f"Thread 0x{n:x} (most recent call first):\n" for n in range(1, 50_000))
    assert len(threads(read(tmp_path, a=ids + '  File "a.py", line 1 in f\n'))) > 40_000


@pytest.mark.parametrize("name", ["local_rank_3", "stacks-local-rank3", "node_rank_0"])
def test_a_local_rank_in_a_files_name_is_no_rank(tmp_path, name):
    found = threads(read(tmp_path, **{name: FAULTHANDLER}))
    assert {thread.process.rank for thread in found} == {None}
