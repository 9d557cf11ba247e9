"""Other tracers, profilers and debuggers: the first one stays, a later one is named."""

import re
import sys

import pytest

from texts import cases

# sys.settrace has one place for all tools; sys.monitoring has a slot for each.
HOOK = "settrace" if sys.version_info < (3, 12) else "monitoring"
# Scripts after oddrank.arm(), their hooks, what they print.
SAYS = cases(__file__)


@pytest.mark.parametrize("name", [name for name, (_, hook, _) in SAYS.items() if hook == HOOK])
def test_another_tool_and_the_recorder_leave_each_other_what_is_theirs(script, name):
    source, _, says = SAYS[name]
    assert script.armed(source).stdout == says


@pytest.mark.skipif(HOOK != "settrace", reason="tools do not share a place")
def test_a_tracer_that_was_there_first_keeps_its_events_and_is_named(script, source):
    done = script(source)
    assert done.stdout == "True True\n"
    assert re.findall(r"script.py:(\d+): RuntimeWarning: (oddrank records no lines)", done.stderr)
    assert "script.py:9: " in done.stderr


def test_a_profiler_that_comes_and_goes_takes_no_lines_away(script, source):
    rank = script.rank(source)
    assert script.functions(rank) == ["<module>", "after"]
    assert rank.main.stack[-1].line == 6


@pytest.mark.parametrize("gives_back", [False, True])
def test_lines_that_another_tool_has_taken_are_not_shown_until_it_gives_them_back(
    script, gives_back, source
):
    rank = script.rank(source.replace("GIVES_BACK", str(gives_back)))
    shown = {frame.function: frame.line for frame in rank.main.stack}
    if HOOK == "settrace" and not gives_back:
        assert shown == dict.fromkeys(("<module>", "outer", "work", "later"))
    else:
        assert shown == {"<module>": 12, "outer": 11, "work": 9, "later": 3}
        assert rank.notes == ()


def test_lines_stay_in_the_record_of_a_thread_that_is_disarmed(script):
    rank = script.rank("""
        def work():
            armed.remove()
        work()
    """)
    assert [frame.line for frame in rank.main.stack][:2] == [4, 3]


def test_an_arm_that_fails_half_way_leaves_nothing_behind(script, source):
    done = script(source)
    assert done.stdout.endswith("None None None\nTrue\n")
