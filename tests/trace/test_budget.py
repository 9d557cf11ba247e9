"""The recorder limits itself: hot code goes down, all else stays, and readers say so."""

import json
import re
import sys

import pytest

import oddrank
from oddrank import OddrankError, _native
from oddrank.trace import diff, jobs, stats, tail, where
from oddrank.trace.arm import HOOKS
from trace_command import oddrank as command

NEW = sys.version_info >= (3, 12)
# The other hook of 3.12 and later knows no budget.
pytestmark = pytest.mark.parametrize("script", [HOOKS[0]], indirect=True)

# A thousandth of the CPU time is spent within milliseconds. `hot` runs until the record says what
# has happened to it, so that no speed is assumed.
HOT = """
import os, signal, sys, threading, time
import oddrank
from oddrank import _native
armed = oddrank.arm(budget=1e-3)

def hot(n):
    value = n + 1
    return value

def until(level):
    for _ in range(3000):
        for i in range(2000):
            hot(i)
        lowered = {f: now for f, _, _, now, _, _ in
                   _native.core().trace_snapshot(armed.path)["lowered"]}
        if lowered.get("hot") == level:
            return
    sys.exit("hot was not lowered")
"""
LOWEST = "off" if NEW else "calls"


def lowered(rank):
    return {each.function: (each.level, each.wanted) for each in rank.lowered}


def test_hot_code_goes_down_and_a_death_elsewhere_is_still_told_by_its_line(script):
    script(
        HOT
        + f"""
def dies():
    os.kill(os.getpid(), signal.SIGKILL)

until({LOWEST!r})
dies()
""",
        check=False,
    )
    (rank,) = script.records()
    assert lowered(rank)["hot"] == (LOWEST, "lines")
    assert [frame.function for frame in rank.main.stack] == ["<module>", "dies"]
    text = (script.folder / "script.py").read_text().splitlines()
    assert text[rank.main.stack[1].line - 1].strip().startswith("os.kill")
    assert rank.main.stack[1].level is None


def test_of_twenty_deaths_elsewhere_each_has_its_line_and_stack(script):
    deaths = (
        HOT
        + f"""
def down(depth):
    if depth:
        return down(depth - 1)
    list(map(hot, range(20_000)))
    dies()

def dies():
    list(map(hot, range(1000)))
    os.kill(os.getpid(), signal.SIGKILL)  # fatal

until({LOWEST!r})
down(int(os.environ["DEPTH"]))
"""
    )
    wrong, lowered_too = [], 0
    for depth in range(20):
        script(deaths, check=False, DEPTH=str(depth))
        rank = max(script.records(), key=lambda each: each.started)
        lines = (script.folder / "script.py").read_text().splitlines()
        functions = [frame.function for frame in rank.main.stack]
        last = rank.main.stack[-1]
        if functions != ["<module>", *["down"] * (depth + 1), "dies"]:
            wrong.append((depth, functions))
        elif last.line is None and last.level is not None:
            lowered_too += (
                1  # it calls hot code itself, and may go down for that: the record says so
            )
        elif last.line is None or not lines[last.line - 1].endswith("# fatal"):
            wrong.append((depth, last.line))
    assert wrong == []
    assert lowered_too <= 2


def test_a_stack_holds_no_line_of_a_lowered_function_and_says_why(script):
    script(
        HOT
        + """
def loops():
    while not found():
        for i in range(1000):
            value = i + 1
            value = value - 1
    os.kill(os.getpid(), signal.SIGKILL)

def found():
    return "loops" in {each[0] for each in _native.core().trace_snapshot(armed.path)["lowered"]}

loops()
""",
        check=False,
    )
    (rank,) = script.records()
    frame = next(frame for frame in rank.main.stack if frame.function == "loops")
    assert frame.line is None
    assert frame.level == lowered(rank)["loops"][0]
    shown = "\n".join(where.text([rank], "job"))
    assert re.search(r"loops  \(line unknown: recorded .* since \d\d:\d\d:\d\d\)", shown)


def test_readers_show_what_is_not_recorded(script):
    script(HOT + f"until({LOWEST!r})\n")
    (rank,) = script.records()
    file = jobs.find([str(script.folder / "records")]).files[0]
    if NEW:
        shown = "\n".join(where.text([rank], "job"))
        assert re.search(
            r"not in the stacks since [\d:]{8}, called too often: .*hot \(.*:7\)", shown
        )
    assert any("hot" in line and "from here on" in line for line in tail.text(file, 1 << 20))
    done = command("where", file, "--json", "-", folder=script.folder / "records")
    (data,) = json.loads(done.stdout)["data"]["ranks"]
    (hot,) = [each for each in data["lowered"] if each["function"] == "hot"]
    assert (hot["level"], hot["wanted"]) == (LOWEST, "lines")
    (read,), _ = stats.read([file])
    assert "hot" in {each.function for each in read.lowered}
    assert any("hot" in note for note in stats.notes([read]))
    command("export", file, "-o", script.folder / "out.json", folder=script.folder / "records")
    assert f"hot: recorded by {LOWEST} from here on" in (script.folder / "out.json").read_text()


def test_two_ranks_that_limit_themselves_at_different_moments_do_not_part(script, tmp_path):
    script(HOT + f"until({LOWEST!r})\n")
    (one,) = jobs.find([str(script.folder / "records")]).files
    a = diff.read(one)
    assert any(function == "hot" for function, _ in a.lowered)
    functions = a.lowered
    b = diff.History(1, "host", 1, tuple(i for i in a.items if i.name != "hot"), a.whole)
    found = diff.compare(a, b)
    assert (found.a_next, found.b_next) == ((), ())
    assert "hot" in "\n".join(diff.text(found))
    assert functions == found.a.lowered


def test_a_function_that_waits_stays_as_it_is(script):
    script(
        HOT
        + f"""
def waits(event):
    event.wait()

event = threading.Event()
thread = threading.Thread(target=waits, args=(event,))
thread.start()
until({LOWEST!r})
os.kill(os.getpid(), signal.SIGKILL)
""",
        check=False,
    )
    (rank,) = script.records()
    assert "waits" not in lowered(rank)
    (thread,) = [
        each
        for each in rank.threads
        if each.name == "Thread-1 (waits)" or each.name.startswith("Thread-1")
    ]
    assert "waits" in [frame.function for frame in thread.stack]


def test_stacks_are_right_after_each_change(script):
    done = script(
        HOT.replace("armed = ", "_native.core().trace_check(True)\narmed = ")
        + f"""
def deep(n):
    return deep(n - 1) if n else hot(n)

def steps(n):
    for i in range(n):
        yield hot(i)

def raises(n):
    try:
        hot(n) / 0
    except ZeroDivisionError:
        return sum(steps(3))

def other():
    while running:
        raises(1)
        deep(3)

running = True
thread = threading.Thread(target=other)
thread.start()
for i in range(3000):
    deep(20), raises(i), list(steps(5))
until({LOWEST!r})
for i in range(3000):
    deep(20), raises(i), list(steps(5))
running = False
thread.join()
print(*_native.core().trace_check_result())
"""
    )
    events, wrong = map(int, done.stdout.split())
    assert events > 1000
    assert wrong == 0


def test_a_function_that_has_become_quiet_is_recorded_as_before(script):
    done = script(
        HOT
        + f"""
until({LOWEST!r})
def rare():
    return sum(range(10**6))  # CPU time without events: it is saved

def is_lowered():
    return "hot" in {{each[0] for each in _native.core().trace_snapshot(armed.path)["lowered"]}}

deadline = time.monotonic() + 50
while is_lowered() and time.monotonic() < deadline:
    for i in range(50):
        rare()
    hot(1)
print(is_lowered())
"""
    )
    assert done.stdout == "False\n"


def test_arming_again_records_everything_again(script):
    done = script(
        HOT
        + f"""
until({LOWEST!r})
armed.disarm()
armed = oddrank.arm(budget=None)
lowered = _native.core().trace_snapshot(armed.path)["lowered"]
hot(1)
print(lowered)
os.kill(os.getpid(), signal.SIGKILL) if lowered else None
"""
    )
    assert done.stdout == "[]\n"
    file = jobs.find([str(script.folder / "records")]).files[0]
    _, events, _ = _native.core().trace_history(str(file), 20)
    assert ("line", "hot") in [(kind, frame[0]) for _, _, kind, frame, _, _ in events]


def test_a_forked_child_begins_with_everything(script):
    script(
        HOT
        + f"""
until({LOWEST!r})
if os.fork() == 0:
    hot(1)
    os._exit(0)
os.wait()
"""
    )
    (child,) = [rank for rank in script.records() if rank.is_child]
    assert not child.lowered
    _, events, _ = _native.core().trace_history(child.file, 20)
    assert ("line", "hot") in [(kind, frame[0]) for _, _, kind, frame, _, _ in events]


def test_code_that_is_made_again_is_recorded_as_its_twin(script):
    done = script(
        HOT.replace("armed = ", "_native.core().trace_check(True)\narmed = ")
        + """
def fresh():
    names = {}
    exec(compile("def made(n):\\n    m = n\\n    return m\\n", "made.py", "exec"), names)
    return names["made"]

hot = twin = fresh()
def is_lowered():
    return "made" in {each[0] for each in _native.core().trace_snapshot(armed.path)["lowered"]}
for _ in range(3000):
    list(map(hot, range(2000)))
    if is_lowered():
        break
for i in range(3000):
    hot = fresh()
    list(map(hot, range(10)))
    list(map(twin, range(10)))
print(is_lowered(), *_native.core().trace_check_result())
"""
    )
    is_lowered, events, wrong = done.stdout.split()
    assert is_lowered == "True"
    assert int(events) > 1000
    assert int(wrong) == 0


@pytest.mark.skipif(not NEW, reason="sys.monitoring came with 3.12")
def test_beside_another_tool_hot_code_stays_in_the_stack_and_in_the_childs_record(script):
    script(
        "import sys\nsys.monitoring.use_tool_id(3, 'other')\n"
        + HOT
        + """
def dies():
    os.kill(os.getpid(), signal.SIGKILL)

until("where")
if os.fork() == 0:
    hot(1)
    hot(2)
    os._exit(0)
os.wait()
list(map(lambda i: dies() if i else hot(i), range(2)))
""",
        check=False,
    )
    (rank,) = [each for each in script.records() if not each.is_child]
    (child,) = [each for each in script.records() if each.is_child]
    assert lowered(rank)["hot"] == ("where", "lines")
    assert [frame.function for frame in rank.main.stack] == ["<module>", "<lambda>", "dies"]
    _, events, _ = _native.core().trace_history(child.file, 100)
    kinds = [kind for _, _, kind, frame, _, _ in events if frame[0] == "hot"]
    assert kinds == 2 * ["call", "line", "line", "return"]


def test_without_a_budget_nothing_goes_down(script):
    script(
        HOT.replace("budget=1e-3", "budget=None").replace("3000", "20") + "until('none')\n",
        check=False,
    )
    (rank,) = script.records()
    assert rank.lowered == ()


@pytest.mark.parametrize("budget", [0, -1, 1.5])
def test_a_budget_that_is_no_share_is_refused(script, budget):
    with pytest.raises(OddrankError, match=f"budget={budget}"):
        oddrank.arm(budget=budget)
