"""logs, metrics and triage read the same files, and say the same of those that they can't read."""

import bz2
import gzip
import json
import lzma
import os
import shutil
import subprocess
import sys

import pytest

from inputs.test_files import RAISED, zstd
from metrics.training_log import lines
from oddrank import cli

LOG = (lines(100, 500) + RAISED).encode()
PACKED = gzip.compress(LOG, 1)
MIDDLE = len(PACKED) // 2
DAMAGED = PACKED[:MIDDLE] + bytes(20) + PACKED[MIDDLE + 20 :]
COMMANDS = [("logs", "first-error"), ("metrics",), ("triage",)]


@pytest.fixture
def judged(capsys):
    """Runs a command, and returns its exit code and report."""

    def run(command, *paths):
        with pytest.raises(SystemExit) as ended:
            cli.main([*command, *map(str, paths), "--json", "-"])
        shown = capsys.readouterr()
        return ended.value.code, json.loads(shown.out) if shown.out else shown.err

    return run


# How it is packed -> its bytes.
READ = {
    "a text": LOG,
    "zeros before it": bytes(100_000) + b"\n" + LOG,
    "gz": PACKED,
    "bz2": bz2.compress(LOG),
    "xz": lzma.compress(LOG),
    "zst": zstd(LOG) if shutil.which("zstd") else LOG,
    "UTF-16": f"\u00e9\r\n{LOG.decode()}".encode("utf-16"),
    "UTF-16 in the other order": b"\xfe\xff" + LOG.decode().encode("utf-16-be"),
    "UTF-16 with half a character at its end": LOG.decode().encode("utf-16") + b"\0",
    "twice": gzip.compress(PACKED),
    "with something behind it": PACKED + b"garbage",
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("how", READ)
def test_a_log_is_read_however_it_is_packed(tmp_path, judged, command, how):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "log").write_bytes(READ[how])
    for path in (folder / "log", folder):
        _, made = judged(command, path)
        if command == ("metrics",):
            assert made["data"]["rows"] == 400
        else:
            assert made["findings"][0]["who"]["ranks"] == [3]


# What is wrong -> its bytes, and what is said.
WRONG = {
    "empty": (b"", "left out: it is empty"),
    "packed and empty": (gzip.compress(b""), "left out: it is empty"),
    "cut off": (PACKED[:MIDDLE], "unpacked only in part: Compressed file ended before the"),
    "damaged": (DAMAGED, "left out: it is damaged: "),
    "damaged at its end": (PACKED[:-8] + bytes(8), "left out: it is damaged: CRC check failed"),
    "bad bz2": (bz2.compress(LOG)[:50] + bytes(9) + bz2.compress(LOG)[59:], "it is damaged: "),
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("what", WRONG)
def test_the_same_is_said_of_a_file_that_is_not_whole(tmp_path, judged, command, what):
    """What is left out makes no verdict healthy: neither does it make one odd."""
    content, said = WRONG[what]
    (tmp_path / "bad").write_bytes(content)
    (tmp_path / "good").write_text(lines(1, 101) if command == ("metrics",) else RAISED)
    _, made = judged(command, tmp_path / "good", tmp_path / "bad")
    note, *_ = made["data"]["skipped"]
    assert note.startswith(f"{tmp_path / 'bad'}: ")
    assert said in note
    if command == ("metrics",):
        assert made["verdict"] == ("healthy" if "empty" in said else "incomplete")
        assert made["findings"] == []
        assert (made["data"]["rows"] > 100) == ("part" in said)
    else:
        assert made["verdict"] == "odd"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_damaged_log_alone_is_refused(tmp_path, judged, command):
    """What was unpacked of it may name any rank, and any loss."""
    (tmp_path / "bad").write_bytes(DAMAGED)
    code, error = judged(command, tmp_path / "bad")
    assert code == 2
    assert "left out: it is damaged" in error


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("content", [LOG, PACKED], ids=["text", "packed"])
def test_stdin_and_pipes_are_read_and_a_pipe_without_a_writer_does_not_wait(
    tmp_path, judged, command, content
):
    done = subprocess.run([sys.executable, "-m", "oddrank", *command, "-"], input=content,
                          capture_output=True, check=False)  # fmt: skip
    assert done.returncode in {0, 1}, done.stderr
    reader, writer = os.pipe()
    assert os.write(writer, content) == len(content)
    os.close(writer)
    assert judged(command, f"/dev/fd/{reader}")[0] == done.returncode  # as of <(zcat log)
    os.close(reader)
    os.mkfifo(tmp_path / "pipe")
    assert judged(command, tmp_path / "pipe")[0] == 2
