"""What NicerTrace leaves behind: counts of lines and calls, and a Tee's file."""

import sys

import pytest

from nicer_scripts import Scripts
from oddrank import Tee


@pytest.fixture
def scripts(tmp_path):
    return Scripts(tmp_path)


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
        from oddrank import NicerTrace, Tee
        def work():
            tee.file.close()
            return 7
        sys.stdout = tee = Tee("trace.txt")
        result = NicerTrace(packages_to_include="uninstalled").runfunc(work)
        sys.stdout = tee.stdout
        print(result)
        """
    )
    assert out.splitlines()[-2:] == ["script.py:     6:     return 7", "7"]
    assert "could not be written: ValueError('I/O operation on closed file" in scripts.errors
