"""`oddrank logs` refuses with one line and exit code 2, before it touches a file."""

import gzip
import json
import os
import signal
import subprocess
import sys

import pytest

from logs.logs_command import oddrank, written


def refused(*arguments):
    """Returns the one line on stderr of a command that is refused."""
    done = oddrank(*arguments, check=2)
    assert not done.stdout
    (line,) = done.stderr.splitlines()
    return line


@pytest.mark.parametrize("link", [False, True])
@pytest.mark.parametrize("command", ["first-error", "silent", "split", "merge", "merge -o"])
def test_an_output_that_is_also_an_input_is_refused(tmp_path, command, link):
    log = written(tmp_path / "a.log", "[rank0]: 2026-01-01 00:00:01 a")
    text, output = log.read_text(), log
    if link:
        output = tmp_path / "link"
        output.symlink_to(log)
    name, *options = command.split()
    arguments = (options or ["--json"])[0], output
    if command == "split" or (command == "merge" and not options):
        arguments += "-o", tmp_path / "out"
    line = refused(name, log, *arguments)
    assert line == f"oddrank: {output} is also an input: give another file"
    assert log.read_text() == text
    assert not (tmp_path / "out").exists()


def test_a_merged_log_does_not_replace_a_log_of_the_folder_that_is_read(tmp_path):
    written(tmp_path / "a.log", "2026-01-01 00:00:01 a")
    merged = tmp_path / "all.log"
    oddrank("merge", tmp_path, "-o", merged, check=0)
    assert "is also an input" in refused("merge", tmp_path, "-o", merged)
    assert merged.read_text() == "(a.log) 2026-01-01 00:00:01 a\n"


def test_devices_may_be_read_and_written(tmp_path):
    log = written(tmp_path / "a.log", "[rank0]: a")
    oddrank("first-error", log, "--json", os.devnull, check=0)


@pytest.mark.parametrize("command", ["first-error", "merge", "silent", "split"])
def test_a_time_to_end_takes_follow(tmp_path, command):
    log = written(tmp_path / "a.log", "[rank0]: a")
    output = ("-o", tmp_path / "out") if command == "split" else ()
    assert "give --follow, too" in refused(command, log, "--for", "1", *output)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("ends", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("command", ["first-error", "merge", "silent", "split"])
def test_a_signal_ends_following_with_the_report(tmp_path, command, ends):
    log = written(tmp_path / "a.log", "[rank0]: a", "[rank1]: b")
    made, out = tmp_path / "made.json", tmp_path / "out"
    arguments = ["--follow", "--json", made, *(("-o", out) if command == "split" else ())]
    # So that the handler must be there before anything is read: what has come is then read.
    script = f"""
import os, signal
from oddrank import cli
from oddrank.logs import following
read = following.Follower.read
def reads(self):
    os.kill(os.getpid(), {int(ends)})
    return read(self)
following.Follower.read = reads
cli.main()
"""
    process = subprocess.run([sys.executable, "-c", script, "logs", command, log, *arguments],
                             timeout=100, check=False)  # fmt: skip
    assert process.returncode == (3 if command == "silent" else 0)
    assert json.loads(made.read_text())["tool"] == f"logs {command}"


def test_names_of_missing_files_are_quoted(tmp_path):
    assert "there is no ''" in refused("first-error", "")
    assert "there is no 'x y'" in refused("silent", "x y")


@pytest.mark.parametrize("command", ["merge", "silent", "split"])
def test_following_a_missing_file_says_that_it_is_missing(tmp_path, command):
    output = ("-o", tmp_path / "out") if command == "split" else ()
    line = refused(command, tmp_path / "none.log", "--follow", *output)
    assert f"there is no {str(tmp_path / 'none.log')!r}" in line


@pytest.mark.parametrize("command", ["merge", "silent", "split"])
def test_only_text_can_be_followed(tmp_path, command):
    output = ("-o", tmp_path / "out") if command == "split" else ()
    packed, binary = tmp_path / "a.log.gz", tmp_path / "b.log"
    packed.write_bytes(gzip.compress(b"[rank0]: a\n"))
    binary.write_bytes(bytes(range(256)) * 4)
    for path in (packed, binary):
        why = f"--follow takes text that grows, and {str(path)!r} is packed or binary"
        assert why in refused(command, path, "--follow", *output)
    assert "and - is stdin" in refused(command, "-", "--follow", *output)


def test_a_file_is_no_folder_for_the_parts(tmp_path):
    log = written(tmp_path / "a.log", "[rank0]: a")
    assert f"{str(log)!r} is a file: give -o a new folder" in refused("split", log, "-o", log)
