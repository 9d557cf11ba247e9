"""Lines with words of several readers: found in one scan, given as they stand."""

import pytest

from oddrank.inputs import Notes
from oddrank.triage.evidence import lines as under_test
from triage.facts_of import item_of

ONE = under_test.words("apple", ("pears", -2))
OTHER = under_test.words("banana", "cherry")


@pytest.fixture
def file(tmp_path):
    def write(text):
        (tmp_path / "log").write_bytes(text)
        return item_of(tmp_path / "log")

    return write


def test_each_reader_has_its_lines_and_those_that_come_with_a_word(file):
    item = file(b"nothing\napple and banana\r\n[rank3]: cherry\nlast apple")
    both = (2, "apple and banana")
    assert list(under_test.matching(item, ONE, Notes())) == [both, (4, "last apple")]
    assert list(under_test.matching(item, OTHER, Notes())) == [both, (3, "[rank3]: cherry")]
    item = file(b"pears\n 1\n 2\n 3\nbanana\n")
    assert [n for n, _ in under_test.matching(item, ONE, Notes())] == [1, 2, 3]
    assert [n for n, _ in under_test.matching(item, OTHER, Notes())] == [5]


def test_lines_are_whole_whatever_the_blocks_and_cut_if_they_are_very_long(file, monkeypatch):
    assert list(under_test.lines(file(b"a\nb"), (2, 9))) == [(2, "b")]
    text = b"".join(b"%d apple %s\n" % (n, b"x" * (n * 7 % 50)) for n in range(300))
    whole = text.decode().splitlines()
    for block in (1, 7, 64, 1000):
        monkeypatch.setattr(under_test, "_BLOCK", block)
        for wanted in ((1,), (300,), (1, 2, 150, 299, 300), range(1, 301)):
            found = list(under_test.lines(file(text), wanted))
            assert found == [(n, whole[n - 1]) for n in wanted], block
    (line,) = under_test.lines(file(b"apple" + b"x" * (200 << 10) + b"\nbanana\n"), (1,))
    assert len(line[1]) == 64 << 10
