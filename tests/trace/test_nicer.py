"""oddrank.NicerTrace: the text it prints, the code it leaves out, its counts, and Tee."""

import re
import sys

import pytest

from nicer_scripts import Scripts, files_of
from oddrank import NicerTrace
from oddrank.trace import Tee

EXAMPLE = """
    import os
    import socket
    import sys
    from oddrank import NicerTrace
    from oddrank.trace import Tee

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
 script.py:10 main
H:MM:SS script.py:    11:     img = image.new(4)
 pkg.image:1 new
H:MM:SS image.py:     2:     check(size)
 pkg.image:6 check
H:MM:SS image.py:     7:     assert size > 0
H:MM:SS image.py:     3:     return [0] * size
H:MM:SS script.py:    12:     for pixel in img:
H:MM:SS script.py:    13:         pass
H:MM:SS script.py:    12:     for pixel in img:
H:MM:SS script.py:    13:         pass
H:MM:SS script.py:    12:     for pixel in img:
H:MM:SS script.py:    13:         pass
H:MM:SS script.py:    12:     for pixel in img:
H:MM:SS script.py:    13:         pass
H:MM:SS script.py:    12:     for pixel in img:
"""  # noqa: W291


@pytest.fixture
def scripts(tmp_path):
    return Scripts(tmp_path)


def traced(arguments, work="work()"):
    """Returns a script that traces its own module, an installed package and the library."""
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


def test_counts_are_those_of_the_standard_library_and_written_by_it(scripts):
    out = scripts.run(
        """
        import io, sys, trace
        from oddrank import NicerTrace
        def fib(n):
            if n < 2:
                return n
            return fib(n - 1) + fib(n - 2)
        ours, theirs = NicerTrace(count=1, trace=0), trace.Trace(count=1, trace=0)
        for tracer in (ours, theirs, ours, theirs):
            tracer.runfunc(fib, 12)
        mine = {key: n for key, n in theirs.counts.items() if key[0] == __file__}
        assert mine and {k: n for k, n in ours.counts.items() if k[0] == __file__} == mine
        ours.results().write_results(coverdir="cover")
        """
    )
    assert out == ""
    cover = (scripts.folder / "cover" / "script.cover").read_text().splitlines()
    assert cover[4:7] == [
        "  930:     if n < 2:",
        "  466:         return n",
        "  464:     return fib(n - 1) + fib(n - 2)",
    ]


def test_functions_and_who_calls_them(scripts):
    out = scripts.run(
        """
        from oddrank import NicerTrace
        class Inner:
            def deep(self):
                pass
        def outer():
            def nested():
                pass
            Inner().deep()
            Inner().deep()
            nested()
        for how in ("countfuncs", "countcallers"):
            tracer = NicerTrace(packages_to_include="uninstalled", **{how: 1})
            tracer.runfunc(outer)
            results = tracer.results()
            print(sorted(name for _, _, name in results.calledfuncs))
            print(sorted((a[2], b[1], b[2]) for a, b in results.callers))
        """
    )
    deep = "deep" if sys.version_info < (3, 11) else "Inner.deep"
    names = str(sorted([deep, "nested", "outer"]))
    calls = [("outer", "script", called) for called in (deep, "nested")]
    assert out.splitlines() == [names, "[]", names, str(calls)]


def test_a_tee_appends_to_its_file_at_once_and_is_stdout_otherwise(tmp_path, capsys, monkeypatch):
    file = tmp_path / "trace.txt"
    file.write_text("before\n")
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    sys.stdout = tee = Tee(file)
    print("text é")
    assert file.read_text(encoding="utf-8") == "before\ntext é\n"
    assert capsys.readouterr().out == "text é\n"
    assert tee.isatty() is False


def test_a_tee_whose_file_is_closed_loses_the_file_only(scripts):
    out = scripts.run(
        """
        import sys
        from oddrank import NicerTrace
        from oddrank.trace import Tee
        def work():
            tee.file.close()
            return 7
        sys.stdout = tee = Tee("trace.txt")
        result = NicerTrace(packages_to_include="uninstalled").runfunc(work)
        sys.stdout = tee.stdout
        print(result)
        """
    )
    assert out.splitlines()[-2:] == ["script.py:     7:     return 7", "7"]
    assert "could not be written: ValueError('I/O operation on closed file" in scripts.errors
