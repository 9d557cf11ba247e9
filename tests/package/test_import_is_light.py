"""`import oddrank` loads no torch, numpy, rich or click and no compiled module."""

import subprocess
import sys


def modules_after(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nprint('\\n'.join(sys.modules))"
    return set(subprocess.check_output([sys.executable, "-c", code], text=True).split())


def test_import_oddrank_loads_nothing_heavy():
    heavy = {"torch", "numpy", "rich", "click", "oddrank._core", "oddrank._cuda", "oddrank._torch"}
    assert not modules_after("import oddrank") & heavy


def test_the_first_use_of_printflock_loads_the_core_alone():
    loaded = modules_after("import oddrank; oddrank.printflock('x')")
    assert "oddrank._core" in loaded
    assert not loaded & {"torch", "numpy", "rich", "click", "oddrank._cuda", "oddrank._torch"}


def test_the_command_triage_loads_no_reader_and_no_judge_before_it_runs():
    loaded = modules_after("import oddrank.triage.command")
    assert {name for name in loaded if name.startswith("oddrank.triage")} == {
        "oddrank.triage",
        "oddrank.triage.command",
    }
