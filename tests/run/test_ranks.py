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

pytestmark = [pytest.mark.job, pytest.mark.timeout(900)]
SCENARIOS = Path(__file__).with_name("rank_scenarios.py")
CONFIG = """
[pytest]
markers = torch: takes torch
xfail_strict = false
junit_logging = all
addopts = --strict-markers -ra
"""


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


@pytest.mark.parametrize(
    "name",
    [
        "test_each_rank_knows_its_place",
        "test_parameters_and_fixtures[a[b]::c/d-3]",
        "test_parameters_and_fixtures[\\xfc-4]",
        "TestClass.test_method",
        "TestUnittest.test_passes",
        "TestUnittest.test_without_the_mark",
        "test_leaves_children",
        "test_warns",
    ],
)
def test_passes(seen, name):
    assert seen[name] == Outcome("passed", "", seen[name].output)


def test_no_process_outlives_its_test(seen):
    assert seen.left == []
    assert "processes that the test had left were ended: sleep (pid" in seen.output


def test_assertions_are_rewritten_and_shown_once(seen):
    said = seen["test_assertions_are_rewritten"]
    assert said.verdict.startswith("ranks 0-1 raised AssertionError: assert {")
    assert "Differing items" in said.text
    assert said.text.count("    def test_assertions_are_rewritten(ranks):") == 1


def test_a_rank_that_raises_is_named_and_what_ranks_print_is_shown_by_rank(seen):
    said = seen["test_rank_1_alone_raises"]
    assert said.kind == "failure"
    assert re.match(
        r"rank 1.* raised ValueError: labels out of range, at test_rank_1", said.verdict
    )
    assert "ranks 0, 2: passed" in said.text
    assert '>           raise ValueError("labels out of range")' in said.text
    for rank in range(3):
        section = rf"Captured stdout of rank {rank}, call -+\nrank {rank} prints"
        assert re.search(section, seen.output)


def test_a_fixture_that_fails_in_one_rank_is_that_ranks_failure(seen):
    said = seen["test_fixture_fails_in_rank_1"]
    assert re.match("rank 1.* raised OSError: no such device, at broken_in_rank_1", said.verdict)
    assert "rank 1: failed in setup" in said.text
    said = seen["test_fixture_fails_at_its_end"]
    assert re.match("rank 1.* raised OSError: cannot clean up, at broken_at_its_end", said.verdict)
    assert "rank 1: failed in teardown" in said.text


def test_skips(seen):
    wanted = {
        "test_skip_by_mark": "by a mark",
        "test_skip_in_all_ranks": "not on this machine",
        "test_skip_in_rank_1": "rank 1: rank 1 has no data; rank 0 passed",
    }
    for name, why in wanted.items():
        assert (seen[name].kind, seen[name].text) == ("skip", why)
    assert "test_scenarios.py" in re.search(r"SKIPPED .*rank 1 has no data.*", seen.output)[0]


def test_expected_failures(seen):
    said = seen["test_xfail_in_rank_1"]
    assert (said.kind, said.text) == ("xfail", "rank 1: known; rank 0 passed")
    assert seen["test_xfail_from_inside"].text == "says so itself"
    assert seen["test_xfail_by_death"].kind == "xfail"
    assert seen["test_xfail_of_another_kind"].kind == "failure"
    assert "raised TypeError: not known" in seen["test_xfail_of_another_kind"].verdict
    assert seen["test_xfail_that_passes"].text == "[XPASS(strict)] thought to fail"


def test_a_rank_that_exits_early_is_named(seen):
    said = seen["test_rank_1_exits_early"]
    assert re.match(r"rank 1.* exited with code 0 \(before its test had ended\)", said.verdict), (
        said.text
    )
    assert "rank 1: ended by exit code 0" in said.text


def test_a_killed_rank_is_named_and_its_last_words_are_shown(seen):
    said = seen["test_rank_2_is_killed"]
    assert re.match("rank 2.* was killed with SIGKILL", said.verdict)
    assert re.search(r"Captured stdout of rank 2, call -+\nlast words", seen.output)


def test_ten_megabytes_of_output_are_shortened(seen):
    said = seen["test_prints_much"]
    assert said.kind == "failure"
    assert "bytes left out" in said.output
    assert "the end" in said.output
    assert len(said.output) < 1_000_000


def test_coroutines_take_a_plugin(seen):
    said = seen["test_async"]
    assert said.kind == "failure"
    assert "async def functions are not natively supported" in said.text


def test_wrong_use_is_explained(seen):
    assert "write ranks(4) or ranks(4, deadline=60, fresh=True)" in seen["test_no_rank"].text
    assert "mark the test: @pytest.mark.ranks(2)" in seen["test_without_the_mark"].text


def test_unittest_failures_have_their_traceback(seen):
    said = seen["TestUnittest.test_fails"]
    assert re.match("rank 1.* raised AssertionError: 1 != 0, at test_fails", said.verdict)


def test_a_rank_that_sleeps_until_the_deadline_is_named_with_its_stack(seen):
    said = seen["test_rank_1_sleeps"]
    assert said.kind == "failure"
    assert said.verdict.startswith("rank 1 did not end within 8 s: in test_rank_1_sleeps (")
    assert "rank 0: passed" in said.text
    assert re.search(r"rank 1, MainThread .*:\n +File .*in test_rank_1_sleeps$", said.text, re.M)


def test_a_rank_that_hangs_at_its_end_is_named(seen):
    said = seen["test_rank_1_hangs_at_its_end"]
    assert said.verdict.startswith("rank 1 passed, but the process does not end: in _shutdown")
    assert "in wait" in said.text


def test_a_stopped_rank_is_named(seen):
    said = seen["test_rank_1_is_stopped"]
    assert re.match("rank 1.* is stuck: stopped by a signal", said.verdict)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("name", ["test_all_reduce", "test_own_process_group"])
def test_collectives_work(seen_with_torch, name):
    assert seen_with_torch[name].kind == "passed", seen_with_torch[name].text


@pytest.mark.needs("torch-build")
def test_a_hang_names_who_is_awaited_and_where_the_others_wait(seen_with_torch):
    said = seen_with_torch["test_rank_2_hangs_before_a_collective"]
    assert re.match(
        r"rank 2 .*is stuck: .*; ranks 0-1, 3 wait for it in all_reduce 4 of default_pg",
        said.verdict,
    ), said.text
    stack = re.search(r"rank 2, MainThread .*:\n((?: +File .*\n)+)", said.text)
    assert "in _waits_for_a_batch" in stack[1]
    assert re.search(r"ranks 0-1, 3, MainThread .*:\n((?: +File .*\n)+)", said.text)


@pytest.mark.needs("torch-build")
def test_a_rank_that_returns_before_a_collective_is_named(seen_with_torch):
    said = seen_with_torch["test_rank_0_leaves_before_a_collective"]
    assert said.verdict.startswith(
        "rank 0 passed without entering all_reduce 2; ranks 1-2 wait in it"
    ), said.text
    assert "ranks 1-2: had not ended: in all_reduce" in said.text
    assert "Connection closed by peer" not in said.text  # that came after the verdict


@pytest.mark.needs("torch-build")
@pytest.mark.parametrize(
    ("name", "how"),
    [
        (
            "test_rank_1_raises_while_others_wait",
            "raised ValueError: labels out of range, at test_",
        ),
        ("test_rank_1_exits_while_others_wait", "exited with code 0 "),
    ],
)
def test_the_first_cause_is_named_and_the_waiting_are_not(seen_with_torch, name, how):
    said = seen_with_torch[name]
    assert re.match(f"rank 1.* {how}", said.verdict), said.text
    assert re.search("ranks? 0(, |-)2|rank [02]", said.verdict.partition(how)[2]), said.text


@pytest.mark.needs("torch")
def test_no_process_outlives_its_test_with_torch(seen_with_torch):
    assert seen_with_torch.left == []
