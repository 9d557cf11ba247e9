"""Lines with words of several readers: found in one scan, given as they stand."""

import os
import random

import pytest

from oddrank import _native
from oddrank.inputs import Notes
from oddrank.triage.evidence import launcher, watchdog
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


def test_a_log_that_was_scanned_is_opened_near_the_lines_that_are_read_again(file):
    log = [b"%d apple %s\n" % (n, b"x" * (n * 7919 % 400)) for n in range(60_000)]
    log[20_000] = b"x" * (9 << 20) + b"\n"  # a line over several marks
    item = file(b"".join(log))
    assert under_test.begin(item, 50_000) == (0, 0)  # not scanned yet
    assert len(under_test.scan(item)["marks"]) > 3
    for first in (1, 9000, 19_999, 20_001, 20_002, 20_003, 59_990):
        lines, at = under_test.begin(item, first)
        assert b"".join(log)[:at].count(b"\n") == lines < first
        assert (at > 0) == (first > 15_000)
        wanted = range(first, first + 3)
        whole = [(n, log[n - 1].decode()[:-1][: 64 << 10]) for n in wanted]
        assert list(under_test.lines(item, wanted)) == whole
        found = _native.core().scan_lines(
            os.fsencode(item.path), [("apple", 0)], ranges=[(first, first + 2)], begin=(lines, at)
        )
        assert [m[0] for m in found["matches"]] == [n for n in wanted if n != 20_001]


def test_readers_that_share_one_pass_find_what_each_finds_alone(tmp_path):
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    told, *others = [("apples", 0), ("pears:", 3)], [("banana", 0)], [("cherry", -2), ("grapes", 0)]
    texts = [word for words in (told, *others) for word, _ in words]
    log = []
    for _ in range(40_000):  # of several blocks, most of them without a word
        rank = f"[rank{chance.randrange(9)}]: " if chance.random() < 0.8 else ""
        word = chance.choice(texts) if chance.random() < 0.0005 else ""
        log.append(f"{rank}{word}{'x' * chance.randrange(80)}{chance.choice(chr(13) + '  .')}\n")
    log += [f"{text}\n" for text in texts]  # each is found
    for place in (-1, -9000, 100):  # endless lines, whose words may lie across borders of blocks
        line = bytearray(b"\r 7%|##" * (chance.randrange(1, 40) << 13))
        for at in chance.sample(range(len(line) - 9), chance.randrange(4)):
            line[at : at + 6] = chance.choice(texts).encode()
        log.insert(place, line.decode() + "\n")
    path = tmp_path / "log"
    path.write_text("".join(log), newline="")
    core = _native.core()
    scan, found = core.LogReaders(told, others).read(os.fsencode(path))
    assert scan == core.scan_lines(os.fsencode(path), told), seed
    for words, mine in zip(others, found, strict=True):
        alone = core.scan_lines(os.fsencode(path), words, speakers=False)["matches"]
        assert mine == [match[:2] for match in alone], seed
    assert scan["matches"]
    assert all(found)


def test_however_many_lines_need_those_beside_them_a_log_is_opened_as_often(file, monkeypatch):
    """Opened anew for each line, it would be read in the square of its length."""
    opened = []
    wanted = under_test._wanted
    monkeypatch.setattr(under_test, "_wanted", lambda *how: opened.append(1) or wanted(*how))
    beside = (
        "/job:jax_worker/replica:0/task:3\nop [missing ranks: 1, 3]\nMissing ranks:\n0: [a.b]\n"
        "Worker unexpectedly exits with code 2. pid: 5\n"
    )
    counts = []
    for times in (1, 300):
        opened.clear()
        item = file(beside.encode() * times)
        for kind in (watchdog.KIND, launcher.KIND):
            assert list(kind.read([item], Notes()))
        counts.append(len(opened))
    assert counts[0] == counts[1] > 0
