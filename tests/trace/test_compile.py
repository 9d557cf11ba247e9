"""torch.compile under an armed recorder: step() and mark() are recorded without a graph break."""

import os
import sys
import textwrap

import pytest

import forked

pytestmark = [pytest.mark.needs("torch"), pytest.mark.timeout(300)]


def run(tmp_path, source, armed=True):
    source = f"import oddrank\nif {armed}: oddrank.arm()\n" + textwrap.dedent(source)
    environ = {**os.environ, "ODDRANK_DIR": str(tmp_path)}
    done = forked.run([sys.executable, "-c", source], env=environ, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_a_compiled_step_is_one_graph_and_gives_the_same_numbers(tmp_path, source):
    said = run(tmp_path, source)
    assert said.split() == ["1", "0", "True"]


def test_the_compiler_can_write_down_its_settings(tmp_path, source):
    """torch's own compiler does so at each compilation, as Python that sets them again."""
    said = run(tmp_path, source)
    assert said.split() == ["True"]


def test_the_profiler_sees_the_same_operations_with_and_without(tmp_path, source):
    armed, plain = (run(tmp_path, source, armed) for armed in (True, False))
    assert armed == plain
    assert "aten::mm" in armed


def test_the_steps_of_one_optimizer_count_until_the_script_tells_its_own(tmp_path, source):
    said = run(tmp_path, source)
    assert said.splitlines() == ["step 1", "step 2", "step 3", "step 4", "step 700"]
