"""Other tracers, profilers and debuggers: the first one stays, a later one is named."""

import signal
import sys

import pytest

from oddrank import OddrankError
from oddrank.trace.arm import HOOKS

# With settrace only: sys.monitoring has a slot for each tool.
one_place_for_all = pytest.mark.parametrize("script", ["settrace"], indirect=True)
with_monitoring = pytest.mark.parametrize(
    "script", sorted({"monitoring"} & set(HOOKS)), indirect=True
)


@one_place_for_all
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


@pytest.mark.parametrize("unknown", sorted({"profile", "settrace", "monitoring"} - set(HOOKS)))
def test_a_hook_that_there_is_not_is_refused(unknown):
    import oddrank

    with pytest.raises(OddrankError, match=f"hook='{unknown}'.*{' and '.join(HOOKS)}"):
        oddrank.arm(hook=unknown)


@one_place_for_all
def test_a_tracer_that_is_set_and_put_back_leaves_us_as_we_were(script):
    script(
        """
        import os, sys
        import oddrank
        oddrank.arm()
        def inside():
            os._exit(0)
        def outside():
            mine = sys.gettrace()
            sys.settrace(None)
            sys.settrace(mine)
            inside()
        outside()
        """
    )
    (rank,) = script.records()
    lines = [(frame.function, frame.line) for frame in rank.main.stack]
    assert lines == [("<module>", 12), ("outside", 11), ("inside", 6)]
    assert rank.notes == ()


@one_place_for_all
def test_a_tracer_of_another_thread_stays_and_ours_goes(script):
    done = script(
        """
        import sys, threading
        import oddrank
        events, begun, go_on, ended = [], threading.Event(), threading.Event(), threading.Event()
        def tracer(frame, event, argument):
            events.append(event)
            return tracer
        def traced():
            sys.settrace(tracer)
            begun.set()
            go_on.wait()
            (lambda: 1)()
            ended.set()
        def idle():
            go_on.wait()
            ended.wait()
            print(sys.gettrace())
        threads = [threading.Thread(target=traced), threading.Thread(target=idle)]
        [thread.start() for thread in threads]
        begun.wait()
        with oddrank.arm():
            print(type(sys.gettrace()).__name__)
        print(sys.gettrace())
        events.clear()
        go_on.set()
        [thread.join() for thread in threads]
        print(events.count("call") > 0)
        """
    )
    assert done.stdout == "TraceHook\nNone\nNone\nTrue\n"


@one_place_for_all
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


@pytest.mark.parametrize("gives_back", [False, True])
def test_lines_that_another_tool_has_taken_are_not_shown_until_it_gives_them_back(
    script, gives_back
):
    done = script(
        f"""
        import os, signal, sys
        import oddrank
        oddrank.arm()
        def later():
            os.kill(os.getpid(), signal.SIGKILL)
        def work():
            ours = sys.gettrace()
            sys.settrace(None)
            if {gives_back}:
                sys.settrace(ours)
            later()
        def outer():
            work()
        outer()
        """,
        check=False,
    )
    (rank,) = script.records()
    assert done.returncode == -signal.SIGKILL, done.stderr
    shown = {frame.function: frame.line for frame in rank.main.stack}
    if script.hook == "settrace" and not gives_back:
        # From 3.12 on, calls are lost with the lines.
        later = {"later"} if sys.version_info < (3, 12) else set()
        assert shown == dict.fromkeys({"<module>", "outer", "work"} | later)
    else:
        assert shown == {"<module>": 15, "outer": 14, "work": 12, "later": 6}


def test_lines_stay_in_the_record_of_a_thread_that_is_disarmed(script):
    script(
        """
        import os, signal
        import oddrank
        armed = oddrank.arm()
        def work():
            armed.disarm()
        work()
        """
    )
    (rank,) = script.records()
    assert [frame.line for frame in rank.main.stack][:2] == [7, 6]


@with_monitoring
def test_a_tool_that_has_taken_our_id_keeps_its_events_when_we_disarm(script):
    done = script(
        """
        import sys
        import oddrank
        armed = oddrank.arm()
        tools, starts = sys.monitoring, []
        tools.free_tool_id(4)
        tools.use_tool_id(4, "thief")
        tools.register_callback(4, tools.events.PY_START, lambda code, _: starts.append(code))
        tools.set_events(4, tools.events.PY_START)
        armed.disarm()
        print(tools.get_tool(4), tools.get_events(4) == tools.events.PY_START)
        starts.clear()
        (lambda: 1)()
        print(len(starts))
        """
    )
    assert done.stdout == "thief True\n1\n"


@with_monitoring
def test_a_tool_whose_name_is_no_utf8_raises_nothing_in_the_script(script):
    done = script(
        """
        import sys
        import oddrank
        armed = oddrank.arm()
        sys.monitoring.free_tool_id(4)
        sys.monitoring.use_tool_id(4, "\\udc80")
        oddrank.step(64)
        print("goes on")
        """
    )
    assert done.stdout == "goes on\n"


@pytest.mark.parametrize("script", HOOKS[:1], indirect=True)
def test_an_arm_that_fails_half_way_leaves_nothing_behind(script):
    done = script(
        """
        import sys
        import oddrank
        def refuse(*_):
            if refusing:
                raise RuntimeError("refused")
        new = hasattr(sys, "monitoring")
        refusing = False
        sys.addaudithook(lambda event, _: refuse() if event == "sys.settrace" else None)
        if new:
            works, sys.monitoring.set_events = sys.monitoring.set_events, refuse
        refusing = True
        try:
            oddrank.arm()
        except oddrank.OddrankError as error:
            print(error)
        refusing = False
        if new:
            sys.monitoring.set_events = works
        print(sys.getprofile(), sys.gettrace(), new and sys.monitoring.get_tool(4) or None)
        print(bool(oddrank.arm().path))
        """,
    )
    assert done.stdout.endswith("None None None\nTrue\n")
