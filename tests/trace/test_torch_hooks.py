"""Where `_torch` does not fit, torch's own hooks write the same records, also of a rank that hangs.

ODDRANK_TEST_OTHER_TORCH names a Python of this one's version that has torch 2.14 or newer.
"""

import json
import re
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

import gloo_ranks
import other_torch
from patience import PATIENCE, until
from processes import captured
from texts import cases, texts

pytestmark = pytest.mark.timeout(300)
JOB = Path(__file__).with_name("torch_hooks_job.py")
TESTS = str(JOB.parents[1])
RUNS_FILE = "import runpy; del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')"
# Hooks of torch 2.14 cannot tell these from the same call with one tensor.
SAME = {
    "allgather_into_tensor_coalesced_": "_allgather_base_",
    "reduce_scatter_tensor_coalesced_": "_reduce_scatter_base_",
}
CASES = cases(__file__)


@pytest.mark.parametrize("name", CASES)
def test_with_a_thin_object_for_a_group(tmp_path, name):
    code, _, expected = CASES[name]
    program = tmp_path / "program.py"
    program.write_text(texts(__file__)["fakes"] + code)
    done = captured([sys.executable, program], ODDRANK_DIR=str(tmp_path), PYTHONPATH=TESTS)
    assert (done.returncode, done.stdout.strip()) == (0, expected.strip()), done.stderr


def ranks(
    line: Sequence[str], folder: Path, world: int, *options: str
) -> "AbstractContextManager[list[Popen[str]]]":
    """Starts the job with the Python and torch of `line`."""
    environ = other_torch.environ()
    return gloo_ranks.ranks([*line, JOB, folder, *options], folder, world, fresh=True, env=environ)


def rows(line: Sequence[str], folder: Path, *options: str) -> list[list[dict[str, Any]]]:
    """Returns what each of two ranks has recorded."""
    folder.mkdir()
    with ranks(line, folder, 2, *options) as started:
        assert [rank.wait(PATIENCE.seconds(120)) for rank in started] == [0, 0]
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(2)]


@pytest.fixture
def other(tmp_path: Path) -> list[str]:
    line = other_torch.command(tmp_path / "packages", RUNS_FILE)
    line[-1] = line[-1].replace("\n", f"; sys.path.append({TESTS!r})\n", 1)
    has_hooks = "import torch.distributed as d; print(hasattr(d.ProcessGroup, 'register_pre_hook'))"
    if captured([line[0], "-c", has_hooks], check=True).stdout.strip() != "True":
        pytest.skip("that torch has no hooks")
    return line


@pytest.mark.needs("other-torch", "torch-build")
def test_both_recorders_write_the_same_rows(tmp_path, other):
    own = [sys.executable, "-c", f"import sys; sys.path.append({TESTS!r})\n{RUNS_FILE}"]
    by_torch, by_hooks = rows(own, tmp_path / "torch"), rows(other, tmp_path / "hooks")
    for of_rank in (*by_torch, *by_hooks):
        for row in of_rank:
            row["op"] = SAME.get(row["op"], row["op"])
    for rank in range(2):
        assert by_hooks[rank] == by_torch[rank]
        assert len(by_torch[rank]) == 23


@pytest.mark.needs("other-torch", "torch-build")
def test_a_job_that_leaves_its_groups_to_the_end_of_python_ends_well(tmp_path, other):
    rows(other, tmp_path / "job", "leave")


@pytest.mark.needs("other-torch", "torch-build")
def test_a_stuck_rank_is_named_with_its_collective_and_place(tmp_path, other):
    def said() -> str:
        return captured([sys.executable, "-m", "oddrank", "triage", f"{tmp_path}/records"]).stdout

    with ranks(other, tmp_path, 4, "stuck"):
        until(lambda: re.search(r"rank 2 \(\S+\) is stuck", said()))
        named = said()
    assert "is stuck in wait_alone (torch_hooks_job.py:" in named
    assert "ranks 0-1, 3 wait for it in all_reduce 3 of default_pg" in named
