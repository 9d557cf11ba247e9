"""`@pytest.mark.ranks`: tests that pass, skip, fail, die and hang in some of their ranks."""

import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from patience import PATIENCE, until
from processes import Marked
from texts import texts

pytestmark = [pytest.mark.job, pytest.mark.timeout(900)]
SCENARIOS = Path(__file__).with_name("rank_scenarios.py")
CONFIG = texts(__file__)["config"]


@dataclass(frozen=True)
class Outcome:
    """What pytest says of one test. text: of its failure, skip or expected failure."""

    kind: str
    text: str = ""
    output: str = ""

    @property
    def verdict(self) -> str:
        return self.text.partition("\n")[0]


@dataclass(frozen=True)
class Run:
    outcomes: dict[str, Outcome]
    output: str
    left: list[str]

    def __getitem__(self, name: str) -> Outcome:
        return self.outcomes[name]


def run(folder: Path, *options: str) -> Run:
    """Runs the scenarios in a pytest of their own."""
    folder.mkdir(exist_ok=True)
    shutil.copy(SCENARIOS, folder / "test_scenarios.py")
    (folder / "pytest.ini").write_text(CONFIG)
    mark = Marked()
    environ = {**os.environ, **mark.environ, "COLUMNS": "300"}
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_ADDOPTS"):
        environ.pop(name, None)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--junitxml=all.xml"]
    try:
        done = subprocess.run(
            [*command, *options, "test_scenarios.py"],
            cwd=folder, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=PATIENCE.seconds(800), check=False,
        )  # fmt: skip
        with suppress(AssertionError):  # those that were killed need a core to end in
            until(lambda: not mark.living())
        left = [process.name for process in mark.living()]
    finally:
        mark.kill_all()
    return Run(outcomes(folder / "all.xml"), done.stdout, left)


def outcomes(report: Path) -> dict[str, Outcome]:
    found = {}
    for case in ET.parse(report).iter("testcase"):
        kind, text = "passed", ""
        for child in case:
            if child.tag in ("failure", "error", "skipped"):
                kind = child.get("type", "").removeprefix("pytest.") or child.tag
                kind = child.tag if child.tag != "skipped" else kind
                text = child.text if child.tag != "skipped" else child.get("message")
        said = "".join(child.text or "" for child in case if child.tag.startswith("system-"))
        owner = case.get("classname", "").rpartition(".")[2]
        name = case.get("name", "")
        found[f"{owner}.{name}" if owner.startswith("Test") else name] = Outcome(
            kind, text or "", said
        )
    return found


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run(tmp_path_factory.mktemp("plain"), "-n", "4", "-m", "not torch")


@pytest.fixture(scope="module")
def seen_with_torch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    return run(tmp_path_factory.mktemp("torch"), "-n", "2", "-m", "torch")


PASS = [
    "test_each_rank_knows_its_place", "test_parameters_and_fixtures[a[b]::c/d-3]",
    "test_parameters_and_fixtures[\\xfc-4]", "TestClass.test_method", "TestUnittest.test_passes",
    "TestUnittest.test_without_the_mark", "test_leaves_children", "test_warns",
    "test_mark_of_another_plugin", "test_another_mark_of_another_plugin",
]  # fmt: skip
# Test -> how it ends, its verdict, and what else is told of it.
SAID = {
    "test_assertions_are_rewritten": ("failure", r"ranks 0-1 raised AssertionError: assert \{",
                                      "Differing items"),
    "test_rank_1_alone_raises":
        ("failure", "rank 1.* raised ValueError: labels out of range, at test_rank_1",
         "ranks 0, 2: passed", r'>           raise ValueError\("labels out of range"\)'),
    "test_fixture_fails_in_rank_1":
        ("failure", "rank 1.* raised OSError: no such device, at broken_in_rank_1",
         "rank 1: failed in setup"),
    "test_fixture_fails_at_its_end":
        ("failure", "rank 1.* raised OSError: cannot clean up, at broken_at_its_end",
         "rank 1: failed in teardown"),
    "test_skip_by_mark": ("skip", "by a mark$"),
    "test_skip_in_all_ranks": ("skip", "not on this machine$"),
    "test_skip_in_rank_1": ("skip", "rank 1: rank 1 has no data; rank 0 passed$"),
    "test_xfail_in_rank_1": ("xfail", "rank 1: known; rank 0 passed$"),
    "test_xfail_from_inside": ("xfail", "says so itself$"),
    "test_xfail_by_death": ("xfail", ""),
    "test_xfail_of_another_kind": ("failure", ".*raised TypeError: not known"),
    "test_xfail_that_passes": ("failure", r"\[XPASS\(strict\)\] thought to fail$"),
    "test_rank_1_exits_early":
        ("failure", r"rank 1.* exited with code 0 \(before its test had ended\)",
         "rank 1: ended by exit code 0"),
    "test_rank_2_is_killed": ("failure", "rank 2.* was killed with SIGKILL"),
    "test_prints_much": ("failure", ""),
    "test_async": ("failure", "", "async def functions are not natively supported"),
    "test_no_rank": ("failure", "", r"write ranks\(4\) or ranks\(4, deadline=60, fresh=True\)"),
    "test_without_the_mark": ("error", "", r"mark the test with a number of ranks: @pytest"),
    "test_unknown_argument": ("error", "", "unknown argument dead_line in @pytest.mark.ranks: it"),
    "TestUnittest.test_fails": ("failure", "rank 1.* raised AssertionError: 1 != 0, at test_fails"),
    "test_rank_1_sleeps":
        ("failure", r"rank 1 did not end within 8 s: in test_rank_1_sleeps \(", "rank 0: passed",
         r"rank 1, MainThread .*:\n +File .*in test_rank_1_sleeps$"),
    "test_rank_1_hangs_at_its_end":
        ("failure", "rank 1 passed, but the process does not end: in _shutdown", "in wait"),
    "test_rank_1_is_stopped": ("failure", "rank 1.* is stuck.*: stopped by a signal"),
}  # fmt: skip
STACK = r"MainThread .*:\n(?: +File .*\n)*"
SAID_WITH_TORCH = {
    "test_rank_2_hangs_before_a_collective":
        ("rank 2 .*is stuck: .*; ranks 0-1, 3 wait for it in all_reduce 4 of default_pg",
         rf"rank 2, {STACK} +File .*in _waits_for_a_batch", rf"ranks 0-1, 3, {STACK} +File "),
    "test_rank_0_leaves_before_a_collective":
        ("rank 0 passed without entering all_reduce 2; ranks 1-2 wait in it",
         "ranks 1-2: had not ended: in all_reduce"),
    "test_rank_1_raises_while_others_wait":
        ("rank 1.* raised ValueError: labels out of range, at test_.*(ranks? 0(, |-)2|rank [02])",),
    "test_rank_1_exits_while_others_wait":
        ("rank 1.* exited with code 0 .*(ranks? 0(, |-)2|rank [02])",),
}  # fmt: skip


def check(said: Outcome, verdict: str, *parts: str) -> None:
    assert re.match(verdict, said.verdict), said.text
    for part in parts:
        assert re.search(part, said.text, re.MULTILINE), said.text


@pytest.mark.parametrize("name", PASS)
def test_passes(seen, name):
    assert seen[name] == Outcome("passed", "", seen[name].output)


@pytest.mark.parametrize("name", SAID)
def test_what_is_told_of_a_test(seen, name):
    kind, *told = SAID[name]
    assert seen[name].kind == kind
    check(seen[name], *told)


def test_what_ranks_print_is_shown_by_rank_once_and_where_it_is_long_shortened(seen):
    for rank in range(3):
        section = rf"Captured stdout of rank {rank}, call -+\nrank {rank} prints"
        assert re.search(section, seen.output)
    assert re.search(r"Captured stdout of rank 2, call -+\nlast words", seen.output)
    much = seen["test_prints_much"].output
    assert "bytes left out" in much
    assert "the end" in much
    assert len(much) < 1_000_000
    assert "test_scenarios.py" in re.search(r"SKIPPED .*rank 1 has no data.*", seen.output)[0]
    shown = seen["test_assertions_are_rewritten"].text
    assert shown.count("    def test_assertions_are_rewritten(ranks):") == 1


def test_marks_of_another_form_are_left_alone_with_one_warning_a_process(tmp_path):
    found = run(tmp_path, "-n", "0", "-W", "error", "-k", "of_another_plugin")
    assert [one.kind for one in found.outcomes.values()] == ["passed", "passed"]
    assert found.output.count("is none of oddrank's") == 1


def test_no_process_outlives_its_test(seen):
    assert seen.left == []
    assert "processes that the test had left were ended: sleep (pid" in seen.output


@pytest.mark.needs("torch")
@pytest.mark.parametrize("name", ["test_all_reduce", "test_own_process_group"])
def test_collectives_work(seen_with_torch, name):
    assert seen_with_torch[name].kind == "passed", seen_with_torch[name].text


@pytest.mark.needs("torch-build")
@pytest.mark.parametrize("name", SAID_WITH_TORCH)
def test_the_first_cause_is_named_and_where_the_others_wait(seen_with_torch, name):
    check(seen_with_torch[name], *SAID_WITH_TORCH[name])
    # That came after the verdict.
    leaves = name == "test_rank_0_leaves_before_a_collective"
    assert not leaves or "Connection closed by peer" not in seen_with_torch[name].text


@pytest.mark.needs("torch")
def test_no_process_outlives_its_test_with_torch(seen_with_torch):
    assert seen_with_torch.left == []
