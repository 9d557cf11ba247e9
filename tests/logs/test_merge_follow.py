"""`oddrank logs merge --follow`: what comes is merged by time, and nothing waits for long."""

import json
import os
import signal
import subprocess
import sys

import pytest

from logs.logs_command import report, stamp, typed, written
from oddrank import _native
from oddrank.logs import merging, sources
from oddrank.triage.evidence import Notes
from patience import until


class Live:
    """Merges logs of which lines are fed, and reads what is written."""

    def __init__(self, path, logs=2, clean=False):
        self.path = path
        self.file = path.open("wb")
        self.core = _native.core().LogMerger(
            [0] * logs, self.file.fileno(), False, clean, False,
            lambda number, _: (f"{number}: ", 0),
        )  # fmt: skip

    def feed(self, log, text, now):
        self.core.feed(log, text.encode(), now)

    def give(self, before):
        self.core.give(before)
        return self.path.read_text().splitlines()


@pytest.fixture
def live(tmp_path):
    made = Live(tmp_path / "merged.log")
    yield made
    made.file.close()


def test_a_line_waits_for_earlier_ones_of_other_logs(live):
    live.feed(0, f"{stamp(2)} b\n", now=10)
    assert live.give(10) == []
    live.feed(1, f"{stamp(1)} a\n{stamp(3)} c\n", now=11)
    assert live.give(11) == [f"1: {stamp(1)} a", f"0: {stamp(2)} b"]
    assert live.give(12) == [f"1: {stamp(1)} a", f"0: {stamp(2)} b", f"1: {stamp(3)} c"]
    assert live.core.merged() == {
        "lines": 3, "untimed": 0, "late": 0, "with_times": [0, 1], "without_times": [],
    }  # fmt: skip


def test_lines_without_a_time_stay_behind_the_one_before_them(live):
    live.feed(0, f"{stamp(5)} raised\n  a traceback\n", now=1)
    live.feed(1, f"{stamp(6)} next\n{stamp(2)} late\n", now=1)
    assert [line.split()[-1] for line in live.give(2)] == ["raised", "traceback", "next", "late"]
    counts = live.core.merged()
    assert (counts["lines"], counts["untimed"], counts["late"]) == (4, 1, 1)


def test_a_log_whose_clock_is_behind_holds_no_other_up(live):
    """All its lines are earlier, and the newest have always come just now."""
    live.feed(1, f"{stamp(50)} of the other\n", now=0)
    for moment in range(20):
        live.feed(0, f"{stamp(moment)} behind\n", now=moment)
        if moment == 9:
            assert live.give(1)[-1] == f"1: {stamp(50)} of the other"
    assert len(live.give(20)) == 21


def test_a_line_comes_in_pieces(live):
    live.feed(0, f"{stamp(1)} be", now=1)
    assert live.give(5) == []
    live.feed(0, "gun\n", now=6)
    assert live.give(7) == [f"0: {stamp(1)} begun"]


def test_the_end_of_a_file_ends_its_line(live):
    live.feed(0, f"{stamp(1)} the la", now=1)
    live.core.finish(0, 2)
    live.feed(0, f"{stamp(2)} of the new file\n", now=2)
    assert live.give(3) == [f"0: {stamp(1)} the la", f"0: {stamp(2)} of the new file"]


def test_a_line_of_megabytes_that_does_not_end_is_given_in_parts(live):
    for _ in range(40):
        live.feed(0, "x" * (100 << 10), now=1)
    parts = live.give(2)
    assert len(parts) > 1
    assert max(map(len, parts)) < 2 << 20
    live.core.finish(0, 3)
    assert sum(line.count("x") for line in live.give(4)) == 40 * (100 << 10)


def test_lines_that_wait_take_a_bounded_memory(live):
    text = f"{stamp(1)} {'x' * 1000}\n" * 1000
    for _ in range(100):
        live.feed(0, text, now=1)
    assert os.fstat(live.file.fileno()).st_size > 20 << 20
    assert len(live.give(2)) == 100_000


def test_nothing_of_a_log_reaches_the_terminal_but_text(tmp_path):
    live = Live(tmp_path / "merged.log", clean=True)
    live.feed(0, "\x1b[2J\x1b]0;title\x07text\n", now=1)
    assert live.give(2) == ["0: text"]
    live.file.close()


def test_logs_are_merged_as_they_are_then_while_they_grow(tmp_path):
    a = written(tmp_path / "rank_0.log", f"{stamp(1)} one", f"{stamp(3)} three")
    b = written(tmp_path / "rank_1.log", f"{stamp(2)} two")
    with b.open("a") as file:
        file.write(f"{stamp(4)} fo")  # its rest comes later
    made = tmp_path / "made.json"
    command = [sys.executable, "-m", "oddrank", "logs", "merge", a, b, "--follow", "--json", made]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert [process.stdout.readline().split()[-1] for _ in range(3)] == ["one", "two", "three"]
        with b.open("a") as file:
            file.write("ur\n")
        assert process.stdout.readline() == f"[rank1]: {stamp(4)} four\n"
        a.rename(tmp_path / "old")
        written(a, f"{stamp(5)} five")
        assert process.stdout.readline() == f"[rank0]: {stamp(5)} five\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(100) == 0
    finally:
        process.kill()
        process.wait()
    data = json.loads(made.read_text())["data"]
    assert (data["lines"], data["restarts"], data["without_times"]) == (5, 1, [])


def test_a_merge_whose_reader_left_ends(tmp_path):
    log = written(tmp_path / "a.log", f"{stamp(1)} one")
    command = [sys.executable, "-m", "oddrank", "logs", "merge", log, "--follow"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline()
        process.stdout.close()

        def ended():
            with log.open("a") as file:
                file.write(f"{stamp(2)} more\n")
            return process.poll() is not None

        until(ended)
        assert process.stderr.read() == ""
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


@pytest.mark.parametrize("follow", [[], ["--follow"]])
def test_a_reader_that_takes_nothing_can_be_left(tmp_path, follow):
    """The second signal ends --follow: the first one lets it write what has come."""
    log = written(tmp_path / "a.log", *[f"{stamp(1)} a line"] * 10_000)
    command = [sys.executable, "-m", "oddrank", "logs", "merge", log, *follow]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        process.stdout.read(1)  # the pipe holds less than the rest

        def ended():
            process.send_signal(signal.SIGINT)
            return process.poll() is not None

        until(ended)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_what_came_until_the_end_is_in_the_file_of_o(tmp_path):
    a = written(tmp_path / "a.log", f"{stamp(2)} two")
    b = written(tmp_path / "b.log", f"{stamp(1)} one")
    out = tmp_path / "out.log"
    data = report("merge", a, b, "--follow", "--for", "0", "--offset", "b=5", "-o", out)["data"]
    assert out.read_text() == f"(a.log) {stamp(2)} two\n(b.log) {stamp(1)} one\n"
    assert (data["lines"], data["offsets"][0]["used"]) == (2, True)


def test_the_last_line_is_left_to_what_comes_if_it_has_no_end(tmp_path):
    text = f"{stamp(1)} one\n{stamp(2)} tw"
    (tmp_path / "a.log").write_text(text)
    (source,) = sources.followed([str(tmp_path / "a.log")], Notes())
    assert merging._whole_lines(source) == text.index("\n") + 1
    assert typed("merge", tmp_path / "a.log", "--follow", "--for", "0").stdout == "".join(
        f"(a.log) {line}\n" for line in text.splitlines()
    )


def test_logs_of_which_no_line_ever_names_a_time_are_named(tmp_path):
    """What they held at the start and what came count together."""
    names = ("never", "at first", "later", "silent")
    for name, text in zip(names, ("a\n", f"{stamp(1)} a\n", "a\n", ""), strict=True):
        (tmp_path / name).write_text(text)

    def grow():
        for name, text in zip(names, ("b", "b", f"{stamp(2)} b"), strict=False):
            with (tmp_path / name).open("a") as file:
                file.write(f"{text}\n")

    out = tmp_path / "out"
    logs = sources.followed([str(tmp_path / name) for name in names], Notes())
    with out.open("wb") as file:
        merger = merging.Merger(logs, {}, file.fileno(), strip=False, clean=False)
        add = merger.add
        merger.add = lambda sizes: (add(sizes), grow())
        merger.follow(0)
    data = merger.data()
    assert (data["lines"], data["untimed"]) == (6, 4)
    assert data["without_times"] == [str(tmp_path / "never")]


def test_an_empty_log_is_followed(tmp_path):
    (tmp_path / "a.log").touch()
    assert (
        report("merge", tmp_path / "a.log", "--follow", "--for", "0", "-o", tmp_path / "out")[
            "data"
        ]["lines"]
        == 0
    )
