"""oddrank.NicerTrace: the text it prints, what is in it and what not."""

import re

import pytest

from nicer_scripts import Scripts, files_of
from oddrank import NicerTrace

EXAMPLE = """
    import os
    import socket
    import sys
    from oddrank import NicerTrace, Tee

    from pkg import image

    def main():
        img = image.new(4)
        for pixel in img:
            pass

    if __name__ == "__main__":
        # enable the trace
        if 1:
            cwd = os.path.realpath(".")
            pid = os.getpid()
            hostname = socket.gethostname()
            local_rank = int(os.environ.get("LOCAL_RANK", 0))
            trace_output_file = f"{cwd}/trace-{hostname}-{local_rank}-{pid}.txt"
            sys.stdout = Tee(trace_output_file)
            tracer = NicerTrace(
                trace=1,
                count=1,
                timing=True,
                packages_to_include=["pkg"],
            )
            tracer.run("main()")
        else:
            main()
"""

EXPECTED = """\
 script.py:1 <module>
H:MM:SS <string>:     1: 
 script.py:9 main
H:MM:SS script.py:    10:     img = image.new(4)
 pkg.image:1 new
H:MM:SS image.py:     2:     check(size)
 pkg.image:6 check
H:MM:SS image.py:     7:     assert size > 0
H:MM:SS image.py:     3:     return [0] * size
H:MM:SS script.py:    11:     for pixel in img:
H:MM:SS script.py:    12:         pass
H:MM:SS script.py:    11:     for pixel in img:
H:MM:SS script.py:    12:         pass
H:MM:SS script.py:    11:     for pixel in img:
H:MM:SS script.py:    12:         pass
H:MM:SS script.py:    11:     for pixel in img:
H:MM:SS script.py:    12:         pass
H:MM:SS script.py:    11:     for pixel in img:
"""  # noqa: W291


@pytest.fixture
def scripts(tmp_path):
    return Scripts(tmp_path)


def traced(arguments, work="work()"):
    """A script that traces calls of its own module, an installed package and the library."""
    return f"""
    import colorsys
    from oddrank import NicerTrace
    import own
    from pkg import image
    def work():
        own.mine()
        image.new(1)
        colorsys.rgb_to_yiq(1, 1, 1)
    NicerTrace({arguments}).run("{work}")
    """


def test_the_handbooks_example_prints_its_text_to_stdout_and_into_the_file(scripts):
    out = scripts.run(EXAMPLE, LOCAL_RANK="3")
    assert scripts.masked(out) == EXPECTED
    (file,) = scripts.folder.glob("trace-*-3-*.txt")
    assert scripts.masked(file.read_text()) == EXPECTED


def test_pids_come_before_calls_and_lines_and_times_only_if_wanted(scripts):
    out = scripts.run(traced("log_pids=True, packages_to_include='uninstalled'"))
    (pid,) = set(re.findall(r"^\d+", out, re.M))
    shown = scripts.masked(out).replace(pid, "PID").splitlines()
    assert shown[2:4] == ["PID  script.py:6 work", "PID script.py:     7:     own.mine()"]


def test_runfunc_returns_and_raises_what_the_function_does(scripts):
    out = scripts.run(
        """
        import traceback
        from oddrank import NicerTrace
        def adds(a, *, b):
            return a + b
        def fails():
            raise KeyError("of the user")
        tracer = NicerTrace(packages_to_include="uninstalled")
        print("got", tracer.runfunc(adds, 1, b=2))
        try:
            tracer.runfunc(fails)
        except KeyError as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            print("got", error, last.name)
        try:
            tracer.run("exit(3)")
        except SystemExit as error:
            print("got", error.code)
        tracer.runctx("print('got', x)", {"x": 5})
        """
    )
    assert re.findall("^got .*", out, re.M) == [
        "got 3",
        "got 'of the user' fails",
        "got 3",
        "got 5",
    ]
    assert "script.py:     7:     raise KeyError" in out


@pytest.mark.parametrize(
    ("arguments", "files"),
    [
        ("packages_to_include='uninstalled'", {"script.py", "own.py"}),
        ("packages_to_include=['pkg']", {"script.py", "own.py", "image.py"}),
        ("packages_to_include='pkg'", {"script.py", "own.py", "image.py"}),
        ("packages_to_include=['colorsys.py']", {"script.py", "own.py", "colorsys.py"}),
        ("packages_to_include=None", {"script.py", "own.py", "image.py", "colorsys.py"}),
        ("ignoremods=['pkg', 'own']", {"script.py", "colorsys.py"}),
        ("ignoredirs=['site-packages']", {"script.py", "own.py", "colorsys.py"}),
        ("ignoremods=['own'], packages_to_include='uninstalled'", {"script.py"}),
    ],
)
def test_only_what_is_included_and_not_ignored_is_shown(scripts, arguments, files):
    assert files_of(scripts.run(traced(arguments))) - {"<string>"} == files


def test_folders_and_packages_together_are_refused():
    with pytest.raises(ValueError, match="one of them"):
        NicerTrace(ignoredirs=["/usr"], packages_to_include=["pkg"])


def test_times_are_since_the_tracer_was_made(scripts):
    out = scripts.run(
        """
        from oddrank import NicerTrace
        def work():
            return 1
        tracer = NicerTrace(timing=True, packages_to_include="uninstalled")
        tracer.runfunc(work)
        tracer.start_ns -= 3600 * 10**9  # an hour later
        tracer.runfunc(work)
        """
    )
    assert re.findall(r"^(\d+):\d\d:\d\d script", out, re.M) == ["0", "1"]


def test_text_that_is_run_has_its_scripts_name_and_other_code_without_a_file_has_none(scripts):
    out = scripts.run(
        """
        import collections
        from oddrank import NicerTrace
        Pair = collections.namedtuple("Pair", "a b")
        NicerTrace().run("Pair(1, 2)")
        """
    )
    calls = re.findall(r"^ (\S+:\d+ \S+)$", out.replace(f"{scripts.folder}/", ""), re.M)
    assert calls == ["script.py:1 <module>", "<string>:1 <lambda>"]


def test_inline_caches_make_no_function_too_long_to_show_its_lines(scripts):
    (scripts.folder / "own.py").write_text("def long(a):\n" + "    a = a + a\n" * 950)
    out = scripts.run(
        """
        from oddrank import NicerTrace
        import own
        NicerTrace().runfunc(own.long, 0)
        """
    )
    assert out.count("a = a + a") == 950
