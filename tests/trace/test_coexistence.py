"""Other tracers, profilers and debuggers: the first one stays, a later one is named."""

import re
import sys

import pytest

import oddrank
from oddrank.trace.arm import HOOKS

# sys.settrace has one place for all tools; sys.monitoring has a slot for each.
ONE_PLACE, SLOTS = ["settrace"], sorted({"monitoring"} & set(HOOKS))
# Hooks, script after oddrank.arm(), what it prints.
SAYS = {
    "another tool that takes the hook is named and may give it back": (ONE_PLACE, """
        note = lambda: repr(core.trace_snapshot(armed.path)["displaced_by"])
        def other_tool(frame, event, argument):
            return None
        def work():
            return 1
        mine, before = sys.gettrace(), note()
        sys.settrace(other_tool)
        work()
        during = note()
        sys.settrace(mine)
        work()
        print(before, during, note())
    """, "'' '__main__.other_tool' ''\n"),
    "a tracer of another thread stays and ours goes": (ONE_PLACE, """
        armed.disarm()
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
    """, "TraceHook\nNone\nNone\nTrue\n"),
    "a tool that has taken our id keeps its events when we disarm": (SLOTS, """
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
    """, "thief True\n1\n"),
    "a tool whose name is no UTF-8 raises nothing in the script": (SLOTS, """
        sys.monitoring.free_tool_id(4)
        sys.monitoring.use_tool_id(4, "\\udc80")
        oddrank.step(64)
        print("goes on")
    """, "goes on\n"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("script", "name"),
    [(hook, name) for name, (hooks, _, _) in SAYS.items() for hook in hooks],
    indirect=["script"],
)
def test_another_tool_and_the_recorder_leave_each_other_what_is_theirs(script, name):
    _, source, says = SAYS[name]
    assert script.armed(source).stdout == says


@pytest.mark.parametrize("script", ONE_PLACE, indirect=True)
def test_a_tracer_that_was_there_first_keeps_its_events_and_is_named(script):
    done = script("""
        events = []
        def tracer(frame, event, argument):
            events.append(event)
            return tracer
        sys.settrace(tracer)
        def work():
            return 1
        armed = oddrank.arm()
        work()
        armed.disarm()
        print(events.count("line") > 0, sys.gettrace() is tracer)
    """)
    assert done.stdout == "True True\n"
    assert re.findall(r"script.py:(\d+): RuntimeWarning: (oddrank records no lines)", done.stderr)
    assert "script.py:9: " in done.stderr


@pytest.mark.parametrize("unknown", sorted({"profile", "settrace", "monitoring"} - set(HOOKS)))
def test_a_hook_that_there_is_not_is_refused(unknown):
    with pytest.raises(oddrank.OddrankError, match=f"hook='{unknown}'.*{' and '.join(HOOKS)}"):
        oddrank.arm(hook=unknown)


def test_a_profiler_that_comes_and_goes_takes_no_lines_away(script):
    rank = script.rank("""
        import cProfile
        def inside():
            return 1
        def after():
            os._exit(0)
        with cProfile.Profile():
            inside()
        after()
    """)
    assert script.functions(rank) == ["<module>", "after"]
    assert rank.main.stack[-1].line == 6


@pytest.mark.parametrize("gives_back", [False, True])
def test_lines_that_another_tool_has_taken_are_not_shown_until_it_gives_them_back(
    script, gives_back
):
    rank = script.rank(f"""
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
    """)
    shown = {frame.function: frame.line for frame in rank.main.stack}
    if script.hook == "settrace" and not gives_back:
        # From 3.12 on, calls are lost with the lines.
        later = {"later"} if sys.version_info < (3, 12) else set()
        assert shown == dict.fromkeys({"<module>", "outer", "work"} | later)
    else:
        assert shown == {"<module>": 12, "outer": 11, "work": 9, "later": 3}
        assert rank.notes == ()


def test_lines_stay_in_the_record_of_a_thread_that_is_disarmed(script):
    rank = script.rank("""
        def work():
            armed.disarm()
        work()
    """)
    assert [frame.line for frame in rank.main.stack][:2] == [4, 3]


@pytest.mark.parametrize("script", HOOKS[:1], indirect=True)
def test_an_arm_that_fails_half_way_leaves_nothing_behind(script):
    done = script("""
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
    """)
    assert done.stdout.endswith("None None None\nTrue\n")
