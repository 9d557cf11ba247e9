"""Tests that stacks of all tools become facts, with the right process, host and thread."""

from pathlib import Path

import pytest

from oddrank import _native
from oddrank.triage.evidence.log_lines import Writers
from oddrank.triage.evidence.stacks import KIND
from oddrank.triage.facts import Fact, Frame, Identity, Process, Stack, Thread
from triage.facts_of import facts_of, item_of, noted, of_kind
from triage.told import shown

DATA = Path(__file__).with_name("data")
PY_SPY, FAULTHANDLER = (
    (DATA / "stacks" / name).read_text() for name in ("py_spy.txt", "faulthandler.txt")
)


def read(tmp_path: Path, text: str, name: str = "a") -> list[Fact]:
    path = tmp_path / f"{name}.txt"
    path.write_text(text)
    assert KIND.sniff(item_of(path))
    return facts_of(KIND, path)


def threads(facts: list[Fact]) -> dict[Thread, Stack]:
    return {t: fact for fact in facts if isinstance(fact, Stack) for t in fact.threads}


def processes(facts: list[Fact]) -> set[Process]:
    return {thread.process for thread in threads(facts)}


def place(frame: Frame) -> str:
    line = "" if frame.line is None else f":{frame.line}"
    return f"{frame.function} ({frame.file}{line}{', native' * frame.native})"


def in_lines(facts: list[Fact]) -> str:
    """Returns threads with their frames, in the order of lines, and the other facts."""
    found = sorted(threads(facts).items(), key=lambda one: one[0].source.line or 0)
    lines = ["\n      ".join([f"  {shown(t)}", *map(place, s.frames)]) for t, s in found]
    return "\n".join(lines + [f"  {shown(f)}" for f in facts if not isinstance(f, Stack)])


def test_stacks_of_each_tool_become_threads_with_their_process(tmp_path, golden):
    said = []
    for path in sorted((DATA / "stacks").iterdir()):
        found = read(tmp_path, path.read_text(), path.stem)
        assert threads(found), path.name
        said.append(f"{path.stem}\n{in_lines(found)}")
    golden("\n\n".join(said))


def test_tracebacks_come_with_frames_and_last_line(golden):
    said = []
    for path in sorted((DATA / "tracebacks").iterdir()):
        said.append(path.stem)
        found = _native.core().read_stack_text(path.read_bytes())
        writers = [process[5] for process in found["processes"]]
        named = Writers(writers, None, set())
        for kind, link, process, stack, line, text in found["errors"]:
            who = shown(named.process(writers[process]))
            said.append(f"  {line}: {who} {kind} {link}: {text}")
            said += [f"      {place(Frame(*frame))}" for frame in found["stacks"][stack]]
    golden("\n".join(said))


def test_the_file_the_node_and_the_launcher_say_whose_stack_it_is(tmp_path):
    def behind(*prefixes: str) -> set[Process]:
        lines = FAULTHANDLER.splitlines()
        found = read(tmp_path, "".join(f"{p}{line}\n" for line in lines for p in prefixes))
        assert {s.frames[-1].function for s in threads(found).values()} == {"get", "<module>"}
        return processes(found)

    assert behind("[rank12]: ", "[rank13]: ") == {Process(12), Process(13)}
    assert behind("12: ") == {Process(12)}
    assert behind("> ") == {Process(None, None, None, "a.txt")}
    assert behind("(Worker[rank=12] pid=7, ip=10.0.0.1) ") == {Process(12, "10.0.0.1", 7)}
    assert behind("node48: ") == {Process(None, "node48", None, "node48")}
    # As examples/slurm/stacks.sh prints it: equal pids on two nodes are two processes.
    both = "".join(f"node{i}: {line}\n" for i in (0, 1) for line in PY_SPY.splitlines())
    assert processes(read(tmp_path, both)) == {Process(None, f"node{i}", 4711) for i in (0, 1)}
    twice = threads(read(tmp_path, FAULTHANDLER * 2, "rank3"))
    assert {(t.process.rank, t.look) for t in twice} == {(3, 0), (3, 1)}
    (identity,) = of_kind(read(tmp_path, PY_SPY, "node7_rank12"), Identity)
    assert (identity.process.rank, identity.process.pid) == (12, 4711)
    for name in ("local_rank_3", "stacks-local-rank3", "node_rank_0"):
        assert {p.rank for p in processes(read(tmp_path, FAULTHANDLER, name))} == {None}, name


def test_the_number_of_an_attempt_in_a_logs_name_is_no_rank(tmp_path):
    log = 'Traceback (most recent call last):\n  File "a.py", line 4, in main\nValueError: y\n'
    dump = "(Worker pid=7, ip=10.0.0.1) "

    def ranks(*names: str) -> set[int | None]:
        paths = [tmp_path / name for name in names]
        for path in paths:
            path.write_text("".join(f"{dump}{line}\n" for line in log.splitlines()))
        return {one.process.rank for one in of_kind(facts_of(KIND, *paths), Identity)}

    assert ranks("attempt_2.log") == ranks("attempt_1.log", "attempt_2.log") == {None}
    assert ranks("trace_2.log") == {2}


def test_prose_is_no_stack_and_no_head_of_a_process(tmp_path):
    (tmp_path / "a.md").write_text("shopping:\n  apples\n  broadcast\n")
    assert not KIND.sniff(item_of(tmp_path / "a.md"))
    assert len(threads(read(tmp_path, "list\n  apples\n  pears\n" + PY_SPY))) == 2
    for prose in ("PID 4242 exited cleanly, as it should", "Process 3: reward 0.5",
                  "Process 3: x\nstep 4"):  # fmt: skip
        text = f'{prose}\nstep 5\nThread 0x7f01 (idle): "MainThread"\n    wait (threading.py:327)\n'
        assert {p.pid for p in processes(read(tmp_path, text))} == {None}, prose


def test_a_crash_is_no_stack_but_an_abort_shows_where_a_rank_stood(tmp_path):
    dump = "Fatal Python error: {}\n\n" + FAULTHANDLER.partition("\n")[2]
    for why, count in (("Segmentation fault", 0), ("Aborted", 2)):
        found, _ = noted(KIND, tmp_path / "rank1.txt", dump.format(why).encode())
        assert len(threads(found)) == count, why


@pytest.mark.needs("samples")
def test_the_chronicle_of_bloom_has_all_stacks(samples):
    found = facts_of(KIND, samples / "bloom176b" / "tr11-176B-ml_chronicles.md")
    assert len({process.pid for process in processes(found)} - {None}) == 17
    assert len([t for t in threads(found) if t.process.label]) == 8 + 8 + 8 + 16


def test_a_repeated_line_costs_no_memory_beyond_its_length(tmp_path):
    """Each used to be stored with all before it: 100 MB for these."""
    text = "what(): x\n" * 20_000 + 'Thread 1 (idle): "MainThread"\n    run (train.py:1)\n'
    assert len(threads(read(tmp_path, text))) == 1
    ids = "".join(f"Thread 0x{n:x} (most recent call first):\n" for n in range(1, 50_000))
    assert len(threads(read(tmp_path, ids + '  File "a.py", line 1 in f\n'))) > 40_000
