"""`oddrank logs` refuses with one line and exit code 2, before it touches a file."""

import os

import pytest

from logs.logs_command import oddrank, written


def refused(*arguments):
    """Returns the one line on stderr of a command that is refused."""
    done = oddrank(*arguments, check=2)
    assert not done.stdout
    (line,) = done.stderr.splitlines()
    return line


@pytest.fixture
def log(tmp_path):
    return written(tmp_path / "a.log", "[rank0]: 2026-01-01 00:00:01 a", "[rank1]: b")


@pytest.mark.parametrize("link", [False, True])
@pytest.mark.parametrize("command", ["first-error", "split", "merge", "merge -o"])
def test_an_output_that_is_also_an_input_is_refused(tmp_path, log, command, link):
    text, target = log.read_text(), log
    if link:
        target = tmp_path / "link"
        target.symlink_to(log)
    name, *options = command.split()
    arguments = (options or ["--json"])[0], target
    if command == "split" or (command == "merge" and not options):
        arguments += "-o", tmp_path / "out"
    line = refused(name, log, *arguments)
    assert line == f"oddrank: {target} is also an input: give another file"
    assert log.read_text() == text
    assert not (tmp_path / "out").exists()


def test_a_merged_log_does_not_replace_a_log_of_the_folder_that_is_read(tmp_path):
    written(tmp_path / "a.log", "2026-01-01 00:00:01 ValueError: a")
    merged = tmp_path / "all.log"
    oddrank("merge", tmp_path, "-o", merged, check=0)
    assert "is also an input" in refused("merge", tmp_path, "-o", merged)
    assert merged.read_text() == "(a.log) 2026-01-01 00:00:01 ValueError: a\n"
    oddrank("first-error", tmp_path / "a.log", "--json", os.devnull, check=1)  # a device may be


def test_what_cannot_be_read_or_written_is_refused_in_a_line(tmp_path, log, golden):
    binary, empty = tmp_path / "b.log", tmp_path / "c.log"
    binary.write_bytes(bytes(range(256)) * 4)
    empty.touch()
    quiet = written(tmp_path / "quiet.log", "W1201 [rank0]: a warning")
    full = tmp_path / "full"
    full.mkdir()
    written(full / "rank0.log", "precious")
    rows = [
        ("first-error", ""), ("first-error", "x y"), ("split", log, "-o", log),
        ("split", log, "-o", full), ("split", tmp_path / "none", "-o", tmp_path / "out"),
        ("split", log, "-o", log / "out"),
        ("merge", log, "--json", "-"),
        ("merge", log, "-o", tmp_path / "x", "--json", tmp_path / "x"),
        ("merge", log, "-o", tmp_path / "no" / "x"),
        ("first-error", empty), ("first-error", binary), ("first-error", quiet),
        ("split", log, "-o", "/proc/x"),
    ]  # fmt: skip
    lines = [f"{' '.join(map(str, row))}\n  {refused(*row)}" for row in rows]
    assert not any(path.exists() for path in (tmp_path / "x", tmp_path / "no"))
    assert list(tmp_path.glob("out*/*")) == []  # an empty folder may be there
    assert (full / "rank0.log").read_text() == "precious\n"
    golden("\n".join(lines).replace(str(tmp_path), "FOLDER"))
