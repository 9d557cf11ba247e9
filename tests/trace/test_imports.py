"""Installed modules are imported without events up to Python 3.11: samples show their frames."""

import sys
import textwrap
from importlib import import_module
from importlib.machinery import ModuleSpec

import pytest

import patience
from oddrank import _native
from oddrank.trace import where
from oddrank.trace.collectives import after_import

NEW = sys.version_info >= (3, 12)
# `installed` stands for a folder of installed packages: the rule says so.
BEGIN = """
installed = os.path.join(os.path.dirname(__file__), "installed")
sys.path.insert(0, installed)
armed = oddrank.arm({installed + "/": "off"})
"""
DIES = """
def dies():
    os.kill(os.getpid(), signal.SIGKILL)  # fatal
"""
OWN = f"import os, signal\n{DIES}\ndies()\n"


@pytest.fixture
def run(script):
    """Runs a script that imports, with modules of its own and installed ones."""

    def run(source, own=None, check=True, **installed):
        folder = script.folder / "installed"
        folder.mkdir()
        for name, text in installed.items():
            (folder / f"{name}.py").write_text(text)
        if own is not None:
            (script.folder / "own.py").write_text(own)
        return script(BEGIN + source, check=check)

    return run


def last_line(script, frame):
    """Returns the source of a frame's line."""
    return (script.folder / frame.file).read_text().splitlines()[frame.line - 1].strip()


def test_a_hang_in_an_installed_module_is_placed(script):
    (script.folder / "installed").mkdir()
    (script.folder / "installed" / "waits.py").write_text(
        "import threading\nprint('ready', flush=True)\nthreading.Event().wait()\n"
    )
    with script.running(BEGIN + "import waits\n") as process:

        def hangs():
            (rank,) = script.records()
            return rank.main is not None and script.functions(rank)[1:] and rank

        rank = patience.until(hangs)
        assert rank.main.sampled is None if NEW else rank.main.sampled is not None
        process.kill()
        process.wait()
    (dead,) = script.records()
    outer, *inner = dead.main.stack
    assert last_line(script, outer) == "import waits"
    assert {one.file.rpartition("/")[2] for one in inner} == {"threading.py"}
    shown = "\n".join(where.text([dead], "job"))
    assert (", sampled at " in shown) != NEW


def test_own_code_that_an_installed_module_imports_has_its_line_and_events(run, script):
    run("import middle\n", OWN, middle="import own\n")
    (rank,) = script.records()
    outer, module, innermost = rank.main.stack
    assert last_line(script, outer) == "import middle"
    assert (last_line(script, module), module.function) == ("dies()", "<module>")
    assert (last_line(script, innermost), innermost.function) == (
        "os.kill(os.getpid(), signal.SIGKILL)  # fatal", "dies",
    )  # fmt: skip
    assert rank.main.sampled is None


def test_after_an_import_the_next_line_counts_again(run, script):
    run(f"{DIES}\nimport middle\nimport last\ndies()\n", "x = 1\n", middle="import own\n", last="")
    (rank,) = script.records()
    assert [last_line(script, one) for one in rank.main.stack] == [
        "dies()", "os.kill(os.getpid(), signal.SIGKILL)  # fatal",
    ]  # fmt: skip
    _, events, _ = _native.core().trace_history(str(rank.file), 1000)
    kinds = [kind for _, _, kind, *_ in events]
    assert "gap" not in kinds[kinds.index("line") :]  # those before are of arm()
    assert rank.main.sampled is None


def test_a_tracer_that_an_installed_module_sets_sees_its_lines(run):
    debugs = (
        "import sys\nseen = []\n"
        "def f():\n    return 1\n"
        "def see(frame, what, _):\n    seen.append(what)\n    return see\n"
        "before = sys.gettrace()\nsys.settrace(see)\nf()\nsys.settrace(before)\n"
    )
    done = run("import debugs\nprint(debugs.seen)\n", debugs=debugs)
    assert done.stdout.strip() == "['call', 'line', 'return']"


def test_a_tracer_that_an_installed_module_sets_back_brings_no_events(run):
    sets = """
        import sys
        from oddrank import _native
        core = _native.core()
        def f():
            pass
        before = sys.gettrace()
        sys.settrace(None)
        sys.settrace(before)
        f()
        core.trace_check(True)
        for _ in range(100):
            f()
        events, _ = core.trace_check_result()
    """
    done = run("import sets\nprint(sets.events)\n", sets=textwrap.dedent(sets))
    assert done.stdout.strip() == "0"


def test_a_profiler_that_an_installed_module_sets_brings_its_events(run, script):
    sets = "import sys\nsys.setprofile(None)\nimport own\n"
    run("import sets\n", f"import os, signal, time\n{DIES}\ntime.sleep(0.3)\ndies()\n", sets=sets)
    (rank,) = script.records()
    assert last_line(script, rank.main.stack[-1]).endswith("# fatal")
    assert rank.main.sampled is None


def test_a_traceback_shows_no_frame_of_the_import_system(run):
    done = run("import fails\n", check=False, fails="1 / 0\n")
    assert "ZeroDivisionError" in done.stderr
    assert "importlib" not in done.stderr


def test_a_child_forked_in_an_import_has_its_place(run, script):
    run(
        "import forks\n", OWN,
        forks="import os\nif os.fork() == 0:\n    import own\nos.wait()\n",
    )  # fmt: skip
    child = next(rank for rank in script.records() if rank.is_child)
    assert script.functions(child) == ["<module>", "<module>", "dies"]


class Slots:
    __slots__ = ("ran",)

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        self.ran = [*getattr(self, "ran", []), module.__name__]


class OnlyClass:
    create_module = staticmethod(lambda spec: None)
    ran = ()

    @classmethod
    def exec_module(cls, module):
        cls.ran = [*cls.ran, module.__name__]


@pytest.mark.parametrize("loader", [Slots(), OnlyClass], ids=["slots", "class"])
def test_what_waits_for_a_module_leaves_its_loader_which_others_share_as_it_was(
    monkeypatch, loader
):
    class Finder:
        def find_spec(self, name, target=None):
            return ModuleSpec(name, loader) if name.startswith("shared_") else None

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.setattr(sys, "path", ["shared loader", *sys.path])
    monkeypatch.setattr(
        sys, "path_importer_cache", {**sys.path_importer_cache, "shared loader": Finder()}
    )
    seen = []
    after_import("shared_wanted", seen.append)
    names = ["shared_before", "shared_wanted", "shared_after"]
    modules = [import_module(name) for name in names]
    for name in names:
        del sys.modules[name]
    assert seen == [modules[1]]
    assert loader.ran == names
    assert all(module.__loader__ is module.__spec__.loader is loader for module in modules)


def test_who_waits_for_a_module_that_is_nowhere_hinders_no_one(monkeypatch):
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    seen = []
    after_import("oddrank_nowhere", seen.append)
    with pytest.raises(ModuleNotFoundError):
        import_module("oddrank_nowhere")
    assert seen == []
