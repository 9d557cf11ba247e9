"""`oddrank run script.py` does what `python script.py` does, and records it."""

import os
import shutil
import signal
import sys
import sysconfig
import textwrap
from pathlib import Path

import pytest

import oddrank
from oddrank.errors import OddrankError
from oddrank.trace import jobs, ranks
from processes import captured, typed
from texts import texts

TEXTS = texts(__file__)


class Both:
    """A script run by Python alone and by `oddrank run`, unwatched: test_watch.py has guards."""

    def __init__(self, folder):
        self.folder = folder

    def write(self, source, name="script.py"):
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(source))
        return self

    def python(self, *arguments):
        return self._run([sys.executable, *arguments])

    def traced(self, *arguments):
        return self._run([sys.executable, "-m", "oddrank", "run", "--no-watch", *arguments])

    def same(self, *arguments):
        plain, traced = self.python(*arguments), self.traced(*arguments)
        seen = [(done.stdout, done.stderr, done.returncode) for done in (plain, traced)]
        assert seen[1] == seen[0]
        return traced

    def records(self):
        return ranks.read(jobs.find([str(self.folder / "records")]).files)[0]

    def _run(self, command):
        environ = {**os.environ, "ODDRANK_DIR": str(self.folder / "records")}
        return captured(command, env=environ, cwd=self.folder)


@pytest.fixture
def both(tmp_path):
    return Both(tmp_path)


SCRIPT = ("script.py",)
TELLS = TEXTS["tells"]
CHAIN = TEXTS["chain"]
INTERRUPT = TEXTS["interrupt"]
ENDS = "def f():\n    {}\nprint('ran', flush=True)\nf()\n"
MODULE = "import sys\nprint(sys.argv, __name__, __package__, __spec__.name, sys.path[0])\n"
HIDDEN = {
    "package/__init__.py": "__path__.append(__path__[0] + '/hidden')\n",
    "package/hidden/train.py": "print('ran')\n",
}
FAILS = {"package/__init__.py": "1 / 0\n", "package/train.py": ""}
STARTS = {
    "sitecustomize.py": "import sys\nsys.greeting = 'hello'\n",
    "script.py": """\
        import os, subprocess, sys
        path = os.pathsep.join([os.environ.get("PYTHONPATH", ""), os.getcwd()])
        says = [sys.executable, "-c", "import sys; print(sys.greeting)"]
        print(subprocess.check_output(says, env={**os.environ, "PYTHONPATH": path}))
        """,
}
# Files, arguments, the exit code, and the exit code that its record has.
SAME = {
    "arguments": (
        TELLS, ("script.py", "--lr", "1", "-h", "--packages", "x", "--", "y"), 3, 3),
    "the end of the file": (ENDS.format("pass"), SCRIPT, 0, 0),
    "an exit that says why": (ENDS.format("import sys; sys.exit('why')"), SCRIPT, 1, 1),
    "an exit": (ENDS.format("raise SystemExit"), SCRIPT, 0, 0),
    "an exception": (ENDS.format("1/0"), SCRIPT, 1, "ZeroDivisionError"),
    "the end of the process": (ENDS.format("import os; os._exit(7)"), SCRIPT, 7, None),
    "a chain of exceptions": (CHAIN, SCRIPT, 1, "ValueError"),
    "a syntax error": ("def f(:\n", SCRIPT, 1, "SyntaxError"),
    "an interrupt": (INTERRUPT, SCRIPT, -signal.SIGINT, "KeyboardInterrupt"),
    "a program that has a sitecustomize of its own": (STARTS, SCRIPT, 0, 0),
    "a module": ({"package/__main__.py": MODULE}, ("-m", "package", "-m", "--help"), 0, 0),
    "a module that only its package finds": (HIDDEN, ("-m", "package.train"), 0, 0),
    "a package that fails": (FAILS, ("-m", "package.train"), 1, "ZeroDivisionError"),
}  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_a_script_runs_and_ends_as_with_python_alone_and_its_record_says_how(both, name):
    files, arguments, code, ended = SAME[name]
    for file, source in (files if isinstance(files, dict) else {"script.py": files}).items():
        both.write(source, file)
    assert both.same(*arguments).returncode == code
    (record,) = both.records()
    assert (record.end and (record.end.raised or record.end.exit_code)) == ended


def test_bytes_that_are_no_utf_8_do_not_keep_a_script_from_running(both, monkeypatch):
    both.write("import sys; print(ascii(sys.argv), ascii(__file__))")
    (both.folder / "script.py").rename(both.folder / os.fsdecode(b"\xff.py"))
    both.same(os.fsdecode(b"\xff.py"), os.fsdecode(b"--name=\xe9"))
    assert len(both.records()) == 1
    monkeypatch.setitem(os.environ, "TMPDIR", os.fsdecode(b"/tmp/\xff"))
    both.same(os.fsdecode(b"\xff.py"))
    assert len(both.records()) == 2


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [("RANK", "9", "records this process as rank 9: RANK=9"),
     ("ODDRANK_TRACE_MB", "abc", "ODDRANK_TRACE_MB='abc' is no size")],
)  # fmt: skip
def test_a_wrong_variable_is_one_line_without_a_place(both, monkeypatch, name, text, said):
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv(name, text)
    (line,) = both.write("").traced("script.py").stderr.splitlines()
    assert line.startswith(f"oddrank: {said}")


@pytest.mark.parametrize("is_safe", ["", "1"])
def test_the_path_is_the_same(both, monkeypatch, is_safe):
    monkeypatch.setenv("PYTHONSAFEPATH", is_safe)  # as -P does
    both.write("import sys\nprint(sys.path)\n").same("script.py")
    if is_safe:
        assert "No module named script" in both.traced("-m", "script").stderr
    else:
        both.same("-m", "script")


def test_a_module_that_runs_as_main_is_recorded_as_its_package_is(both):
    both.write("", "package/__init__.py")
    train = "import os, oddrank\noddrank.arm('uninstalled=off,{}')\n"
    train += "def end():\n    os._exit(0)\nend()\n"
    stack = ["<module>", "end"]
    cases = {"package=lines": stack, "pack=lines": [], "package=lines,__main__=off": []}
    for levels, functions in cases.items():
        shutil.rmtree(both.folder / "records", ignore_errors=True)
        both.write(train.format(levels), "package/train.py")
        done = both.python("-m", "package.train")
        assert (done.returncode, done.stderr) == (0, "")
        (record,) = both.records()
        assert [frame.function for frame in record.main.stack] == functions


def test_the_script_is_recorded_and_pickles_of_main_work_in_spawned_children(both, source):
    both.write(source)
    assert both.same("script.py").stdout == "4\n"
    found = both.records()
    assert sorted(rank.is_child for rank in found) == [False, True]


@pytest.mark.parametrize(
    ("options", "named"),
    [*(({"stall": stall}, "stall=") for stall in (0, -1.0, float("nan"), float("inf"))),
     ({"on_stall": "colect"}, "'colect' is none of")],
)  # fmt: skip
def test_a_watch_that_cannot_be_followed_is_refused(options, named):
    with pytest.raises(OddrankError, match=named):
        oddrank.arm(**options)


REFUSED = [
    ("--on-stall", "colect"), ("--on-verdict", " "),
    ("--on-verdict", "mail me < {report}"), ("--on-verdict", ""), ("--json", "-"),
    ("--no-watch", "--on-verdict", "true"), ("--no-watch", "--json", "report.json"),
    ("-o", "script.py"), ("-o", "script.py/x/y"), ("-o", "/proc/x/y"), ("--history", "script.py"),
    ("--history", ""),
]  # fmt: skip
ABSENT = [
    ("nowhere.py",), ("package",), ("mem",), ("-m", "nowhere"), ("-m", "no.such.module"),
    ("-m", "package"), ("-m", "package.no"),
]  # fmt: skip


def test_what_cannot_be_followed_is_one_line_before_the_script_runs(both, golden):
    both.write("print('it runs')").write("", "package/__init__.py")
    os.symlink("/proc/self/mem", both.folder / "mem")  # opens, but root can't read it either
    told = []
    asked = [("--no-watch", *names) for names in ABSENT]
    for arguments in [*((*options, "script.py") for options in REFUSED), *asked]:
        done = typed("run", *arguments, cwd=both.folder)
        assert (done.returncode, done.stdout) == (2, ""), arguments
        told.append(f"{' '.join(arguments)}\n  {done.stderr}")
        assert done.stderr.count("\n") == 1, arguments
    golden("".join(told))


def test_the_runner_itself_is_not_recorded(both):
    """Frames of `python -m oddrank` and of the command `oddrank` are not in the record."""
    both.write("import os\ndef end():\n    os._exit(0)\nend()\n")
    command = Path(sysconfig.get_path("scripts")) / "oddrank"
    starts = [["-m", "oddrank"], *([[str(command)]] if command.exists() else [])]
    for start in starts:
        shutil.rmtree(both.folder / "records", ignore_errors=True)
        done = both.python(*start, "run", "--no-watch", "script.py")
        assert (done.returncode, done.stderr) == (0, "")
        (record,) = both.records()
        assert [frame.function for frame in record.main.stack] == ["<module>", "end"]
        assert {Path(frame.file).name for frame in record.main.stack} == {"script.py"}
