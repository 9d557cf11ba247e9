"""A file that grows is read once and whole, however it is rotated or truncated meanwhile."""

import os

import pytest

from oddrank import OddrankError
from oddrank.inputs import growing


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "a.log"
    follower = growing.Follower(path)
    yield path, lambda: list(follower.read())
    follower.close()


def test_a_file_is_read_on_as_it_grows_and_is_rotated(log):
    path, read = log
    assert read() == []  # it does not exist yet
    path.write_bytes(b"one\n")
    assert read() == [b"one\n"]
    with path.open("ab") as file:
        file.write(b"two\n")
        file.flush()
        assert (read(), read()) == ([b"two\n"], [])
        path.rename(path.with_suffix(".1"))
        file.write(b"last\n")
    assert read() == [b"last\n"]  # the new file has not come yet
    path.write_bytes(b"a long new line\n")
    assert read() == [b"", b"a long new line\n"]


NEW = b"".join(b"new %d\n" % n for n in range(300_000))


@pytest.mark.parametrize("new", [b"", b"short\n", b"NEW\n" * 40, NEW],
                         ids=["empty", "shorter", "as long", "longer"])  # fmt: skip
def test_a_file_that_was_truncated_is_read_from_its_beginning(log, new):
    """Also if it has outgrown its old size between two looks."""
    path, read = log
    path.write_bytes(b"old\n" * 40)
    assert read() == [b"old\n" * 40]
    path.write_bytes(new)
    begin, *chunks = read()
    assert (begin, b"".join(chunks)) == (b"", new)
    assert read() == []


def test_a_writer_that_keeps_its_place_leaves_zeros_and_goes_on_behind_them(log):
    path, read = log
    with path.open("wb", buffering=0) as file:
        file.write(b"old\n" * 400)
        assert read() == [b"old\n" * 400]
        os.truncate(path, 0)
        file.write(b"more\n")
    assert read() == [b"more\n"]
    assert read() == []


@pytest.mark.parametrize("path", ["-", "/dev/null", "/", "/none"])
def test_what_cannot_grow_is_refused(path):
    with pytest.raises(OddrankError, match="--follow reads text files that grow"):
        growing.check([path])
