"""Files, folders and archives become items; what can't be read becomes a line, never an error."""

import gzip
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile

import pytest

from oddrank import OddrankError
from oddrank.inputs import Notes, files
from oddrank.triage.evidence import Kind
from oddrank.triage.evidence.kinds import read
from processes import captured

RAISED = "[rank3]: Traceback (most recent call last):\n[rank3]: ValueError: boom\n"
SAID = "rank 3 raised ValueError: boom"
needs_zstd = pytest.mark.skipif(shutil.which("zstd") is None, reason="takes the command zstd")


def found(*paths):
    """Returns name -> content of all items, and the notes."""
    notes = Notes()
    with files.opened([str(path) for path in paths], notes) as items:
        return {item.name: item.path.read_bytes() for item in items}, notes.lines


def tar(path, changed=0, **members):
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(content), changed
            archive.addfile(info, io.BytesIO(content))
    return path


def zstd(content):
    return subprocess.run(["zstd", "-qc"], input=content, check=True, capture_output=True).stdout


def test_a_folder_is_walked_in_order(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "rank1").write_text("one")
    (tmp_path / "a").write_text("zero")
    items, notes = found(tmp_path)
    assert (list(items.values()), notes) == ([b"zero", b"one"], [])


def test_where_no_temporary_folder_is_writable_all_that_is_not_packed_is_read(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: [str(tmp_path / "none")])
    (tmp_path / "log").write_text(RAISED)
    (tmp_path / "packed").write_bytes(gzip.compress(b"hello"))
    items, notes = found(tmp_path)
    assert list(items) == [str(tmp_path / "log")]
    (note,) = notes
    assert "packed: not unpacked: No usable temporary directory found in" in note


def test_without_the_command_zstd_it_is_said_what_it_takes(tmp_path, monkeypatch):
    monkeypatch.setattr(files.shutil, "which", lambda *_, **__: None)
    (tmp_path / "log.zst").write_bytes(b"\x28\xb5\x2f\xfd garbage")
    items, (note,) = found(tmp_path)
    assert not items
    assert note.endswith("log.zst: left out: it takes the command zstd")


def test_members_of_archives_are_named_dated_and_kept_inside(tmp_path):
    inner = tar(tmp_path / "inner.tar", rank3=b"three").read_bytes()
    (tmp_path / "inner.tar").unlink()
    path = tar(tmp_path / "job.tar", **{"node1.tar": inner, "rank0": b"zero"})
    assert found(path)[0] == {f"{path}:node1.tar:rank3": b"three", f"{path}:rank0": b"zero"}
    for changed in (1_700_000_000, 2**70):  # an impossible time, too
        with files.opened([str(tar(path, changed, rank0=b"zero"))], Notes()) as items:
            assert items[0].path.read_bytes() == b"zero"
            kept = items[0].path.stat().st_mtime == changed
            assert kept == (changed < 2**70)
    with tarfile.open(tar(path, **{"../../out": b"evil", "/absolute": b"evil"}), "a") as archive:
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    assert list(found(path)[0].values()) == [b"evil"] * 2
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["job.tar"]


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


RANDOM = os.urandom(200_000)


def test_what_is_cut_off_or_grows_without_end_is_read_in_part_and_said(
    tmp_path, monkeypatch, golden
):
    said = []

    def size_of(name, content):
        (tmp_path / name).write_bytes(content)
        items, notes = found(tmp_path / name)
        said.extend(note.replace(f"{tmp_path}/", "") for note in notes)
        return len(next(iter(items.values()), b""))

    packed, bomb, deep = gzip.compress(RANDOM), gzip.compress(bytes(64 << 20)), b"deep"
    assert 0 < size_of("cut.gz", packed[: len(packed) // 2]) < 200_000
    with monkeypatch.context() as patch:
        patch.setattr(files, "_MOST_UNPACKED", 10 << 20)
        assert 0 < size_of("large.gz", bomb) <= 10 << 20
    with monkeypatch.context() as patch:
        patch.setattr(files, "_MAY_GROW_TO", 1 << 20)
        patch.setattr(files, "_MOST_GROWTH", 100)
        assert 0 < size_of("bomb.gz", bomb) < 8 << 20
    for _ in range(8):
        deep = gzip.compress(deep)
    assert size_of("deep.gz", deep) == 0
    golden("\n".join(said))


def test_a_sparse_file_in_a_small_archive_does_not_fill_the_disk(tmp_path, golden):
    names = ("rank0.log", "rank1.log", "rank2.log")
    for name in names:
        (tmp_path / name).write_text(RAISED)
    for name in names[:2]:
        os.truncate(tmp_path / name, 3 << 30)
    subprocess.run(["tar", "-cSf", "job.tar", *names], cwd=tmp_path, check=True)
    path = tmp_path / "job.tar"
    assert path.stat().st_size <= 64 << 10
    notes = Notes()
    with files.opened([str(path)], notes) as items:
        sizes = [item.size for item in items]
        assert all(item.head.startswith(RAISED.encode()) for item in items)
    assert len(sizes) == 3
    assert sum(sizes) <= 65 << 20
    assert sizes[2] == len(RAISED)
    golden("\n".join(notes.lines).replace(f"{tmp_path}/", ""))


def test_archives_in_an_archive_share_what_it_may_grow_to(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_MAY_GROW_TO", 1 << 20)
    monkeypatch.setattr(files, "_MOST_GROWTH", 100)

    def packed(members):
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in members.items():
                archive.writestr(name, content)
        return made.getvalue()

    inner = packed({f"rank{rank}": b"a" * 900_000 for rank in range(6)})
    (tmp_path / "job.zip").write_bytes(packed({f"node{node}.zip": inner for node in range(4)}))
    items, (note, *_) = found(tmp_path / "job.zip")
    assert sum(map(len, items.values())) < 1.1 * (1 << 20)
    assert note.startswith(f"{tmp_path}/job.zip:node0.zip:rank1: unpacked only in part, as all")


@needs_zstd
def test_a_zst_that_is_cut_off_or_grows_without_end_gives_what_it_holds_and_a_line(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(files, "_MAY_GROW_TO", 1 << 20)
    monkeypatch.setattr(files, "_MOST_GROWTH", 100)
    for content, least, most in (
        (zstd(RANDOM)[:150_000], 1, 200_000), (zstd(RANDOM)[:5], 0, 1),
        (zstd(bytes(64 << 20)), 1, 8 << 20),
    ):  # fmt: skip
        (tmp_path / "log.zst").write_bytes(content)
        items, (note,) = found(tmp_path)
        assert least <= sum(map(len, items.values())) < most
        assert bool(items) == bool(least)
        assert "unpacked only in part" in note


def test_what_is_no_file_or_empty_is_said(tmp_path):
    with pytest.raises(OddrankError, match="there is no"):
        found(tmp_path / "absent")
    os.mkfifo(tmp_path / "pipe")
    assert found(tmp_path / "pipe")[0] == {}  # nobody writes to it
    (tmp_path / "rank0").write_text("zero")
    items, (note,) = found(tmp_path)
    assert list(items.values()) == [b"zero"]
    assert "no regular file" in note
    (tmp_path / "pipe").unlink()
    (tmp_path / "log.gz").write_bytes(gzip.compress(b""))
    tar(tmp_path / "logs.tar", rank0=b"", rank1=b"", rank2=b"two")
    items, notes = found(tmp_path)
    assert list(items.values()) == [b"two", b"zero"]
    assert notes == [
        f"{tmp_path}/log.gz: left out: it is empty",
        f"{tmp_path}/logs.tar: 2 empty files in it",
    ]


def test_a_name_that_is_no_utf8_is_read(tmp_path):
    odd = tmp_path / "odd"
    odd.mkdir()
    for name, text in (
        (b"\xff.log", RAISED),
        (b"s\xff", 'Thread 0x1 (most recent call first):\n  File "a.py", line 3 in f\n'),
    ):
        with open(os.path.join(os.fsencode(odd), name), "w") as file:
            file.write(text)
    shown = captured([sys.executable, "-m", "oddrank", "triage", odd]).stdout
    assert SAID in shown
    assert "udcff.log:1" in shown


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
