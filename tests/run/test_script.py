"""`oddrank run script.py` does what `python script.py` does, and records it."""

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import textwrap
from pathlib import Path

import pytest

import oddrank
from oddrank.errors import OddrankError
from oddrank.trace import jobs, ranks
from oddrank.trace.arm import HOOKS


class Both:
    """A script run by Python alone and by `oddrank run`, unwatched: test_watch.py has guards."""

    def __init__(self, folder):
        self.folder = folder
        self.script = folder / "script.py"

    def write(self, source):
        self.script.write_text(textwrap.dedent(source))
        return self

    def python(self, *arguments):
        return self._run([sys.executable, *arguments])

    def traced(self, *arguments):
        return self._run([sys.executable, "-m", "oddrank", "run", "--no-watch", *arguments])

    def same(self, *arguments, stdin=""):
        plain, traced = self.python(*arguments), self.traced(*arguments)
        assert traced.stdout == plain.stdout
        assert traced.stderr == plain.stderr
        assert traced.returncode == plain.returncode
        return traced

    def records(self):
        return ranks.read(jobs.find([str(self.folder / "records")]).files)[0]

    def _run(self, command):
        environ = {**os.environ, "ODDRANK_DIR": str(self.folder / "records")}
        return subprocess.run(
            command, cwd=self.folder, env=environ, capture_output=True, text=True,
            timeout=60, check=False,
        )  # fmt: skip


@pytest.fixture
def both(tmp_path):
    return Both(tmp_path)


def test_arguments_main_path_and_exit_code_are_the_same(both):
    both.write(
        """
        import sys
        print(sys.argv, __name__, __file__, sys.path[0], sorted(globals()))
        print(sys.modules["__main__"].__dict__ is globals(), __spec__, __builtins__)
        if __name__ == "__main__":
            sys.exit(3)
        """
    )
    done = both.same("script.py", "--lr", "1", "-h", "--packages", "x", "--", "y")
    assert done.returncode == 3


def test_bytes_that_are_no_utf_8_do_not_keep_a_script_from_running(both, monkeypatch):
    both.write("import sys; print(ascii(sys.argv), ascii(__file__))")
    both.script.rename(both.folder / os.fsdecode(b"\xff.py"))
    both.same(os.fsdecode(b"\xff.py"), os.fsdecode(b"--name=\xe9"))
    assert len(both.records()) == 1
    monkeypatch.setitem(os.environ, "TMPDIR", os.fsdecode(b"/tmp/\xff"))
    both.same(os.fsdecode(b"\xff.py"))
    assert len(both.records()) == 2


@pytest.mark.parametrize("is_safe", ["", "1"])
def test_the_path_is_the_same(both, monkeypatch, is_safe):
    monkeypatch.setenv("PYTHONSAFEPATH", is_safe)  # as -P does
    both.write("import sys\nprint(sys.path)\n").same("script.py")
    both.same("-m", "script")


@pytest.mark.parametrize(
    "ends",
    ["", "import sys; sys.exit('said why')", "raise SystemExit", "1/0", "import os; os._exit(7)"],
)
def test_however_a_script_ends_it_looks_the_same(both, ends):
    both.write(f"def f():\n    {ends or 'pass'}\nprint('ran', flush=True)\nf()\n").same("script.py")


def test_a_chain_of_exceptions_and_a_syntax_error_are_told_as_python_tells_them(both):
    both.write(
        """
        def f():
            try:
                {}["a"]
            except KeyError as error:
                raise ValueError("b") from error
        f()
        """
    ).same("script.py")
    both.write("def f(:\n").same("script.py")


def test_an_interrupt_ends_it_by_the_signal(both):
    both.write(
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nimport time\ntime.sleep(9)\n"
    )
    assert both.traced("script.py").returncode == -signal.SIGINT
    assert both.python("script.py").returncode == -signal.SIGINT


def test_an_interrupt_is_followed_by_all_that_an_end_of_python_does(both):
    both.write(
        """
        import atexit, os, signal, threading, time
        def last():
            threading.main_thread().join()
            print("the thread has ended")
        threading.Thread(target=last).start()
        atexit.register(print, "at exit")
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(9)
        """
    )
    plain, traced = both.python("script.py"), both.traced("script.py")
    assert traced.returncode == plain.returncode == -signal.SIGINT
    assert traced.stdout == plain.stdout == "the thread has ended\nat exit\n"


def test_a_module_runs_as_with_minus_m(both):
    package = both.folder / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text(
        "import sys\nprint(sys.argv, __name__, __package__, __spec__.name, sys.path[0])\n"
    )
    both.same("-m", "package", "-m", "--help")


def test_a_module_that_does_not_exist_leaves_no_record(both):
    package = both.folder / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    for name in ("no_such_module_here", "no.such.module", "package", "package.nosuch"):
        assert both.same("-m", name).returncode == 1
    assert not (both.folder / "records").exists()


def test_a_module_that_only_its_package_can_find_is_recorded(both):
    package = both.folder / "package"
    (package / "hidden").mkdir(parents=True)
    (package / "__init__.py").write_text("__path__.append(__path__[0] + '/hidden')\n")
    (package / "hidden" / "train.py").write_text("print('ran')\n")
    assert both.same("-m", "package.train").stdout == "ran\n"
    (record,) = both.records()
    assert record.end.exit_code == 0


def test_a_package_that_fails_as_it_is_imported_is_recorded(both):
    package = both.folder / "package"
    package.mkdir()
    (package / "__init__.py").write_text("1 / 0\n")
    (package / "train.py").write_text("")
    assert both.traced("-m", "package.train").returncode == 1
    (record,) = both.records()
    assert record.end.raised == "ZeroDivisionError"


@pytest.mark.parametrize("hook", HOOKS)
def test_a_module_that_runs_as_main_is_recorded_as_its_package_is(both, hook):
    package = both.folder / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "train.py").write_text("import os\ndef end():\n    os._exit(0)\nend()\n")
    stack = ["<module>", "end"]
    cases = {"package=lines": stack, "pack=lines": [], "package=lines,__main__=off": []}
    for levels, functions in cases.items():
        shutil.rmtree(both.folder / "records", ignore_errors=True)
        filter_ = ("--packages", f"uninstalled=off,{levels}")
        done = both.traced("--hook", hook, *filter_, "-m", "package.train")
        assert (done.returncode, done.stderr) == (0, "")
        (record,) = both.records()
        assert [frame.function for frame in record.main.stack] == functions


def test_the_script_is_recorded_and_pickles_of_main_work_in_spawned_children(both):
    both.write(
        """
        import multiprocessing
        class Thing:
            value = 4
        def child(thing, queue):
            queue.put(thing.value)
        if __name__ == "__main__":
            context = multiprocessing.get_context("spawn")
            queue = context.Queue()
            process = context.Process(target=child, args=(Thing(), queue))
            process.start()
            print(queue.get(timeout=30))
            process.join()
        """
    )
    assert both.same("script.py").stdout == "4\n"
    found = both.records()
    assert sorted(rank.is_child for rank in found) == [False, True]


@pytest.mark.parametrize("stall", [0, -1.0, float("nan")])
def test_a_stall_of_less_than_a_second_is_refused(stall):
    with pytest.raises(OddrankError, match="stall="):
        oddrank.arm(watch=True, stall=stall)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--on-stall", "colect"), "'colect' is no command"),
        (("--on-stall", " "), "' ' is no command"),
        (("--on-stall", "mail me < {report}"), "--json"),
        (("--no-watch", "--json", "report.json"), "--no-watch"),
        (("--json", "-"), "name a file"),
    ],
)
def test_an_option_that_cannot_be_followed_is_one_line_and_exit_code_2(tmp_path, options, named):
    (tmp_path / "script.py").write_text("print('it runs')")
    done = subprocess.run(
        [sys.executable, "-m", "oddrank", "run", *options, "script.py"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert named in done.stderr


def test_a_watch_that_cannot_be_followed_is_refused():
    with pytest.raises(OddrankError, match="'colect' is no command"):
        oddrank.arm(watch=True, on_stall="colect")


def test_no_such_script_is_one_line_and_exit_code_2(both):
    done = both.traced("nowhere.py")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "nowhere.py" in done.stderr


@pytest.mark.parametrize(
    ("levels", "named"), [("torch=loud", "loud"), ("a=calls,=lines", "'=lines'")]
)
def test_a_wrong_level_and_a_level_of_nothing_are_one_line_and_exit_code_2(both, levels, named):
    both.write("print('ran')")
    done = both.traced("--packages", levels, "script.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert named in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("hook", HOOKS)
def test_the_runner_itself_is_not_recorded(both, hook):
    """Frames of `python -m oddrank` and of the command `oddrank` are not in the record."""
    both.write("import os\ndef end():\n    os._exit(0)\nend()\n")
    command = Path(sysconfig.get_path("scripts")) / "oddrank"
    starts = [["-m", "oddrank"], *([[str(command)]] if command.exists() else [])]
    for start in starts:
        shutil.rmtree(both.folder / "records", ignore_errors=True)
        done = both.python(*start, "run", "--no-watch", "--hook", hook, "script.py")
        assert (done.returncode, done.stderr) == (0, "")
        (record,) = both.records()
        assert [frame.function for frame in record.main.stack] == ["<module>", "end"]
        assert {Path(frame.file).name for frame in record.main.stack} == {"script.py"}


@pytest.mark.parametrize("budget", ["1e-3", "none"])
def test_the_budget_is_that_of_the_command_line(both, budget):
    both.write(
        """
        from oddrank import _native
        from oddrank.trace import jobs, ranks

        def hot(n):
            return n + 1

        def is_lowered():
            (record,), _ = ranks.read(jobs.find([]).files)
            return "hot" in {each.function for each in record.lowered}

        for _ in range(200):
            sum(map(hot, range(2000)))
            if is_lowered():
                break
        print(is_lowered())
        """
    )
    done = both.traced("--budget", budget, "script.py")
    assert (done.stdout, done.stderr) == (f"{budget != 'none'}\n", "")


@pytest.mark.parametrize("budget", ["0", "-1", "1.5", "nan", "3%", ""])
def test_a_budget_that_is_no_share_is_refused_before_the_script_runs(both, budget):
    both.write("print('runs')\n")
    done = both.traced("--budget", budget, "script.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert "is no share of the CPU time like 0.03, nor none" in done.stderr
