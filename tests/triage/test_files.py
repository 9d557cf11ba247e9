"""Files, folders and archives become items; what can't be read becomes a line, never an error."""

import bz2
import gzip
import io
import lzma
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest

from oddrank import OddrankError
from oddrank.triage.evidence import Kind, Notes, files
from oddrank.triage.evidence.kinds import read


def found(*paths):
    """Returns name -> content of all items, and the notes."""
    notes = Notes()
    with files.opened([str(path) for path in paths], notes) as items:
        return {item.name: item.path.read_bytes() for item in items}, notes.lines


def tar(path, **members):
    with tarfile.open(path, "w") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def test_a_folder_is_walked_in_order(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "rank1").write_text("one")
    (tmp_path / "a").write_text("zero")
    items, notes = found(tmp_path)
    assert list(items.values()) == [b"zero", b"one"]
    assert not notes


@pytest.mark.parametrize(
    ("ending", "pack"),
    [("gz", gzip.compress), ("bz2", bz2.compress), ("xz", lzma.compress)],
)
def test_compressed_files_are_unpacked_whatever_their_name(tmp_path, ending, pack):
    named, nameless = tmp_path / f"log.{ending}", tmp_path / "log"
    for path in (named, nameless):
        path.write_bytes(pack(b"hello"))
    items, notes = found(tmp_path)
    assert list(items.values()) == [b"hello", b"hello"]
    assert not notes


def test_zstd_is_unpacked_or_says_what_it_takes(tmp_path):
    if shutil.which("zstd") is None:
        (tmp_path / "log.zst").write_bytes(b"\x28\xb5\x2f\xfd garbage")
        items, (note,) = found(tmp_path)
        assert not items
        assert "zstd" in note
        return
    subprocess.run(["zstd", "-q", "-o", tmp_path / "log.zst"], input=b"hello", check=True)
    assert list(found(tmp_path)[0].values()) == [b"hello"]


def test_an_archive_in_an_archive_names_its_members(tmp_path):
    inner = tar(tmp_path / "inner.tar", rank3=b"three").read_bytes()
    (tmp_path / "inner.tar").unlink()
    path = tar(tmp_path / "job.tar", **{"node1.tar": inner, "rank0": b"zero"})
    items, _ = found(path)
    assert items == {f"{path}:node1.tar:rank3": b"three", f"{path}:rank0": b"zero"}


def test_members_keep_the_time_of_their_last_change(tmp_path):
    path = tmp_path / "job.tar"
    with tarfile.open(path, "w") as archive:
        info = tarfile.TarInfo("rank0")
        info.size, info.mtime = 4, 1_700_000_000
        archive.addfile(info, io.BytesIO(b"zero"))
    with files.opened([str(path)], Notes()) as items:
        assert items[0].path.stat().st_mtime == 1_700_000_000


def test_a_zip_is_unpacked(tmp_path):
    with zipfile.ZipFile(tmp_path / "job.zip", "w") as archive:
        archive.writestr("rank0", "zero")
    assert list(found(tmp_path)[0].values()) == [b"zero"]


def test_names_and_links_of_an_archive_reach_nothing_outside(tmp_path):
    path = tmp_path / "evil.tar"
    with tarfile.open(path, "w") as archive:
        info = tarfile.TarInfo("../../escaped")
        info.size = 4
        archive.addfile(info, io.BytesIO(b"evil"))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    items, _ = found(path)
    assert list(items.values()) == [b"evil"]
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["evil.tar"]


def test_a_truncated_archive_gives_what_it_holds_and_a_line(tmp_path):
    packed = gzip.compress(os.urandom(200_000))
    (tmp_path / "log.gz").write_bytes(packed[: len(packed) // 2])
    items, (note,) = found(tmp_path)
    assert 0 < len(next(iter(items.values()))) < 200_000
    assert "unpacked only in part" in note


def test_a_bomb_is_unpacked_only_in_part(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_MOST_UNPACKED", 10 << 20)
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(bytes(64 << 20)))
    items, (note,) = found(tmp_path)
    assert len(next(iter(items.values()))) <= 10 << 20
    assert "only in part" in note


def test_a_file_that_grows_without_end_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_MAY_GROW_TO", 1 << 20)
    monkeypatch.setattr(files, "_MOST_GROWTH", 100)
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(bytes(64 << 20)))
    items, (note,) = found(tmp_path)
    assert len(next(iter(items.values()))) < 8 << 20
    assert "it grows without end" in note


def test_endless_nesting_ends(tmp_path):
    content = b"deep"
    for _ in range(8):
        content = gzip.compress(content)
    (tmp_path / "log.gz").write_bytes(content)
    items, (note,) = found(tmp_path)
    assert not items
    assert "packed more than" in note


def test_a_pipe_and_an_unreadable_file_do_not_stop_it(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "rank0").write_text("zero")
    items, (note,) = found(tmp_path)
    assert list(items.values()) == [b"zero"]
    assert "no regular file" in note


def test_stdin_is_read(tmp_path):
    code = (
        "from oddrank.triage.evidence import Notes, files\n"
        "with files.opened(['-'], Notes()) as items: print(items[0].path.read_text())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input="hello", capture_output=True, text=True, check=True
    )
    assert done.stdout == "hello\n"


def test_a_path_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(OddrankError, match="there is no"):
        found(tmp_path / "absent")


def test_files_of_no_kind_get_a_line_and_binary_kinds_keep_theirs(tmp_path):
    for name in ("dump", "log", "odd"):
        (tmp_path / name).write_text(name)
    taken = []

    def kind(name, binary, wanted):
        def keep(items, notes):
            taken.append((name, [item.path.name for item in items]))
            return []

        return Kind(name, binary, lambda item: item.path.name in wanted, keep)

    kinds = (kind("text", False, {"dump", "log"}), kind("dumps", True, {"dump"}))
    notes = Notes()
    with files.opened([str(tmp_path)], notes) as items:
        list(read(items, notes, kinds))
    assert taken == [("dumps", ["dump"]), ("text", ["log"])]
    (note,) = notes.lines
    assert note.startswith(str(tmp_path / "odd"))


def test_a_name_that_is_no_utf8_is_read_and_shown(tmp_path):
    log, stack = (os.path.join(os.fsencode(tmp_path), name) for name in (b"\xff.log", b"s\xff"))
    with open(log, "w") as file:
        file.write("[rank3]: Traceback (most recent call last):\n[rank3]: ValueError: boom\n")
    with open(stack, "w") as file:
        file.write('Thread 0x1 (most recent call first):\n  File "a.py", line 3 in f\n')
    ask = [sys.executable, "-m", "oddrank", "triage", tmp_path]
    done = subprocess.run(ask, capture_output=True, text=True, check=False)
    assert "rank 3 raised ValueError: boom" in done.stdout, done.stderr
    assert "udcff.log:1" in done.stdout


def test_a_pipe_that_is_named_is_read_and_one_without_a_writer_is_empty(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert found(tmp_path / "pipe")[0] == {}  # it is empty
    log = tmp_path / "log"
    log.write_text("[rank3]: Traceback (most recent call last):\n[rank3]: ValueError: boom\n")
    ask = ["bash", "-c", '"$0" -m oddrank triage <(cat "$1")', sys.executable, log]
    done = subprocess.run(ask, capture_output=True, text=True, check=False, timeout=120)
    assert "rank 3 raised ValueError: boom" in done.stdout, done.stderr


def test_a_member_that_python_cannot_unpack_is_a_note_and_the_others_are_read(tmp_path):
    path = tmp_path / "job.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("odd", "locked", "rank0"):
            archive.writestr(name, "zero")
    content = bytearray(path.read_bytes())
    entries = [at for at in range(len(content)) if content[at : at + 4] == b"PK\x01\x02"]
    content[entries[0] + 10] = 97  # the method
    content[entries[1] + 8] |= 1  # it takes a password
    path.write_bytes(content)
    items, notes = found(path)
    assert items == {f"{path}:rank0": b"zero"}
    assert [note.partition(": ")[0] for note in notes] == [f"{path}:odd", f"{path}:locked"]


def test_a_member_with_an_impossible_time_is_read(tmp_path):
    path = tmp_path / "job.tar"
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as archive:
        for name, changed in (("odd", 2**70), ("rank0", 1_700_000_000)):
            info = tarfile.TarInfo(name)
            info.size, info.mtime = 4, changed
            archive.addfile(info, io.BytesIO(b"zero"))
    items, notes = found(path)
    assert (list(items.values()), notes) == ([b"zero", b"zero"], [])


@pytest.mark.skipif(shutil.which("zstd") is None, reason="takes the command zstd")
@pytest.mark.parametrize("keep", [500_000, 5])
def test_a_truncated_zst_gives_what_it_holds_and_a_line(tmp_path, keep):
    pack = ["zstd", "-qc"]
    done = subprocess.run(pack, input=os.urandom(1 << 20), check=True, capture_output=True)
    (tmp_path / "log.zst").write_bytes(done.stdout[:keep])
    items, (note,) = found(tmp_path)
    assert sum(map(len, items.values())) < 1 << 20
    assert bool(items) == (keep > 5)
    assert "unpacked only in part" in note


def test_empty_copies_are_told(tmp_path):
    (tmp_path / "log.gz").write_bytes(gzip.compress(b""))
    tar(tmp_path / "logs.tar", rank0=b"", rank1=b"", rank2=b"two")
    items, notes = found(tmp_path)
    assert list(items.values()) == [b"two"]
    assert notes == [f"{tmp_path}/log.gz: empty", f"{tmp_path}/logs.tar: 2 empty files in it"]
