"""`oddrank logs merge`: order, who wrote a line, clocks, terminals, what is not known is said."""

import signal
import subprocess
import sys

from logs.logs_command import oddrank, report, shown, stamp, typed, written
from patience import PATIENCE, until

HOSTILE = f"{stamp(1)} \x1b[2J\x1b]0;owned\x07 \x9b31m \u202e ok"
TWO = {
    "rank_0.log": [f"{stamp(1)} one", "  a traceback", f"{stamp(4)} four"],
    "b.log": [f"[node7:rank3] {stamp(2)} two", "nobody's"],
}  # fmt: skip
# Logs by their names; the options.
ROWS = {
    "lines say who wrote them": (TWO, ""),
    "and keep their prefixes if they are stripped": (TWO, "--strip"),
    "a row of dashes keeps the time of its line":
        ({"a.log": [f"[1,0]<stdout>:{stamp(1)} a {74 * '-'}", f"[1,0]<stdout>:{stamp(3)} c"],
          "b.log": [f"[1,1]<stdout>:{stamp(2)} b"]}, "--strip"),
    "a log keeps its order": ({"a.log": [f"{stamp(5)} late", f"{stamp(1)} early"],
                               "b.log": [f"{stamp(2)} between"]}, ""),
    "lines before the first time stay in front":
        ({"a.log": ["start", f"{stamp(1)} one"], "b.log": [f"{stamp(2)} two"]}, ""),
    "a torn line is a line for each writer": ({"a.log": ["[rank0]: x[rank1]: y"]}, ""),
    "a log without times": ({"a.log": [f"{stamp(1)} one"], "b.log": ["no time at all"]}, ""),
    "a hostile line, and a hostile name": ({"a\x1b[31m\n.log": [HOSTILE]}, ""),
}  # fmt: skip


def test_logs_are_merged_by_time_and_what_is_not_known_is_said(tmp_path, golden):
    said = []
    for number, (name, (logs, options)) in enumerate(ROWS.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        paths = [written(folder / log, *lines) for log, lines in logs.items()]
        text = shown(typed("merge", *paths, *options.split()), folder)
        assert all(c.isprintable() or c == "\n" for c in text), name
        said.append(f"{name}\n{text}")
    golden("\n".join(said))
    oddrank("merge", *paths, "-o", tmp_path / "out", check=0)
    assert HOSTILE in (tmp_path / "out").read_text()  # a file keeps it


def test_a_line_of_more_writers_than_are_kept_apart_is_merged_as_it_is(tmp_path):
    parts = [f"[1,{rank}]<stdout>:x" for rank in range(65_600)]
    log = tmp_path / "a.log"
    log.write_text("".join(parts))
    merged = typed("merge", log).stdout.splitlines()
    assert [line.split(" ", 1)[1] for line in merged] == parts


def test_a_log_without_times_is_searched_for_one_only_once(tmp_path):
    """A search of the buffer for each of its lines would take hours."""
    log = written(tmp_path / "a.log", *(f"[rank{n % 64}]: no time {n}" for n in range(300_000)))
    made = report("merge", log, "-o", tmp_path / "out")["data"]
    assert (made["lines"], made["untimed"]) == (300_000, 300_000)
    assert (tmp_path / "out").read_bytes() == log.read_bytes()


def test_a_reader_that_leaves_early_ends_the_merge(tmp_path):
    log = written(tmp_path / "a.log", *(f"{stamp(1)} {'x' * 100}" for _ in range(40_000)))

    command = f"{sys.executable} -m oddrank logs merge {log} | head -1"
    done = subprocess.run(
        command, shell=True, capture_output=True, text=True, timeout=PATIENCE.limit, check=False
    )
    assert len(done.stdout.splitlines()) == 1
    assert "Traceback" not in done.stderr


def test_a_reader_that_takes_nothing_can_be_left(tmp_path):
    log = written(tmp_path / "a.log", *[f"{stamp(1)} a line"] * 10_000)
    command = [sys.executable, "-m", "oddrank", "logs", "merge", log]
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
