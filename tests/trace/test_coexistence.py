"""Other tools that trace, profile or debug: who was there first stays, who comes later is named."""

import sys

import pytest

from oddrank import OddrankError

HOOK = "settrace" if sys.version_info < (3, 12) else "monitoring"


@pytest.mark.skipif(HOOK != "settrace", reason="sys.monitoring has a place for every tool")
def test_another_tool_that_takes_the_hook_is_named_and_may_give_it_back(script):
    done = script(
        """
        import sys
        import oddrank
        from oddrank import _native
        armed = oddrank.arm()
        note = lambda: _native.core().trace_snapshot(armed.path)["displaced_by"]
        def other_tool(frame, event, argument):
            return None
        def work():
            return 1
        mine = sys.gettrace()
        print(repr(note()))
        sys.settrace(other_tool)
        work()
        print(repr(note()))
        sys.settrace(mine)
        work()
        print(repr(note()))
        """
    )
    assert done.stdout == "''\n'__main__.other_tool'\n''\n"


def test_a_hook_of_another_version_is_refused(tmp_path, monkeypatch):
    import oddrank

    other = "monitoring" if HOOK == "settrace" else "settrace"
    with pytest.raises(OddrankError, match=HOOK):
        oddrank.arm(hook=other)


@pytest.mark.skipif(HOOK != "settrace", reason="sys.monitoring has a place for every tool")
def test_a_tracer_that_was_there_first_keeps_its_events_and_is_named(script):
    done = script(
        """
        import sys
        events = []
        def tracer(frame, event, argument):
            events.append(event)
            return tracer
        sys.settrace(tracer)
        import oddrank
        def work():
            return 1
        with oddrank.arm():
            work()
        print(events[-3:], sys.gettrace() is tracer)
        sys.settrace(None)
        """
    )
    assert done.stdout.endswith("True\n")
    assert "'return'" in done.stdout or "'line'" in done.stdout
    assert "RuntimeWarning: oddrank records no lines" in done.stderr


@pytest.mark.skipif(HOOK != "settrace", reason="profilers have no slot of ours above 3.11")
def test_a_profiler_that_comes_and_goes_takes_no_lines_away(script):
    script(
        """
        import cProfile, os
        import oddrank
        oddrank.arm()
        def inside():
            return 1
        def after():
            os._exit(0)
        with cProfile.Profile():
            inside()
        after()
        """
    )
    (rank,) = script.records()
    assert script.functions(rank) == ["<module>", "after"]
    assert rank.main.stack[-1].line == 8
