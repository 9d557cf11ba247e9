"""The recorder limits itself: hot code goes down, all else stays, and readers say so."""

import json
import re
import sys
import textwrap

import pytest

import oddrank
from oddrank import _native
from oddrank.trace import tail, where
from texts import cases, texts
from trace_command import oddrank as command

TEXTS = texts(__file__)

NEW = sys.version_info >= (3, 12)

# A thousandth of the CPU time is spent within milliseconds. `hot` runs until the record says what
# has happened to it, so that no speed is assumed.
HOT = TEXTS["hot"]


@pytest.fixture
def limited(script):
    """Runs a script with a small budget; returns the records, the parent's first."""

    def run(source, overhead=1e-3, **environ):
        script.armed(HOT + textwrap.dedent(source), f"{overhead=}", **environ)
        return sorted(script.records(), key=lambda rank: rank.is_child)

    return run


def lowered(rank):
    return {each.function: (each.level, each.wanted) for each in rank.lowered}


def events_of(rank, function, most=20):
    _, events, _ = _native.core().trace_history(str(rank.file), most)
    return [kind for _, _, kind, frame, _ in events if frame[0] == function]


# Dies at each depth; by then hot code has gone down.
DEATHS = TEXTS["deaths"]


def test_of_deaths_elsewhere_each_has_its_line_and_stack_while_hot_code_goes_down(script, limited):
    wrong = []
    for depth in (0, 1, 2, 3, 5, 8, 13, 19):
        rank = max(limited(DEATHS, DEPTH=str(depth)), key=lambda each: each.started)
        if rank.sampled_since is not None:
            assert rank.main.sampled is not None
            continue
        assert not NEW or lowered(rank)["hot"] == ("off", "lines")
        lines = (script.folder / "script.py").read_text().splitlines()
        functions = [frame.function for frame in rank.main.stack]
        last = rank.main.stack[-1]
        if functions != ["<module>", *["down"] * (depth + 1), "dies"]:
            wrong.append((depth, functions))
        elif last.line is None or not lines[last.line - 1].endswith("# fatal"):
            wrong.append((depth, last.line))
    assert wrong == []


def test_a_stack_holds_no_line_of_a_function_just_lowered_or_a_sampled_one(limited, source):
    (rank,) = limited(source)
    frame = next(frame for frame in rank.main.stack if frame.function == "loops")
    shown = "\n".join(where.text([rank], "job"))
    if rank.main.sampled is None:
        assert (frame.line, frame.level) == (None, lowered(rank)["loops"][0])
        assert "loops  (line unknown: it runs too often to be recorded)" in shown
    else:
        assert frame.line is not None
        assert ", sampled at " in shown


def test_readers_show_what_is_not_recorded(script, limited):
    (rank,) = limited("until()\nos.kill(os.getpid(), signal.SIGKILL)\n")
    (file,) = script.files
    shown = "\n".join(where.text([rank], "job"))
    missing = r".*hot \(.*:2\)" if NEW else "all code"
    assert re.search(rf"only sampled since [\d: -]{{19}}, called too often: {missing}", shown)
    if not NEW:
        return
    assert any("hot" in line and "from here on" in line for line in tail.text(file, 1 << 20))
    done = command("where", file, "--json", "-", folder=script.folder / "records")
    (data,) = json.loads(done.stdout)["data"]["ranks"]
    (hot,) = [each for each in data["lowered"] if each["function"] == "hot"]
    assert (hot["level"], hot["wanted"]) == ("off", "lines")
    command("export", file, "-o", script.folder / "out.json", folder=script.folder / "records")
    assert "hot: recorded by off from here on" in (script.folder / "out.json").read_text()


def test_a_function_that_waits_stays_as_it_is(limited, source):
    (rank,) = limited(source)
    assert "waits" not in lowered(rank)
    (thread,) = [each for each in rank.threads if each.name == "waiting"]
    assert "waits" in [frame.function for frame in thread.stack]


# Scripts that print the number of events and of wrong stacks.
CHANGES = cases(__file__)


@pytest.mark.parametrize("change", CHANGES)
def test_stacks_are_right_after_each_change(script, change):
    source = HOT + CHANGES[change][0]
    events, wrong = map(int, script.armed(source, "overhead=1e-3").stdout.split())
    assert events > 1000
    assert wrong == 0


def test_a_function_that_has_become_quiet_is_recorded_as_before(limited, source):
    (rank,) = limited(source, overhead=1e-2)  # so less CPU time saves enough
    assert "hot" not in lowered(rank)
    assert rank.sampled_since is None
    assert rank.main.sampled is None
    assert "line" in events_of(rank, "hot")


def test_arming_again_records_everything_again(limited, source):
    (rank,) = limited(source)
    assert "line" in events_of(rank, "hot")


def test_a_forked_child_begins_with_everything(limited, source):
    _, child = limited(source)
    assert not child.lowered
    assert child.sampled_since is None
    assert "line" in events_of(child, "hot")


def test_without_a_budget_nothing_goes_down(script):
    source = HOT.replace("3000", "20") + "until('none')\n"
    assert script.rank(source, "overhead=None", check=False).lowered == ()


@pytest.mark.parametrize("overhead", [0, -1, 1.5])
def test_a_budget_that_is_no_share_is_refused(script, overhead):
    with pytest.raises(oddrank.OddrankError, match=f"overhead={overhead}"):
        oddrank.arm(overhead=overhead)
