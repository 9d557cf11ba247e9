"""`oddrank metrics` reads or refuses logs: packed, cut off, binary, empty, pipes."""

import gzip
import json
import os
import subprocess
import sys

import pytest

from metrics.training_log import lines
from oddrank import _native

LOG = lines(1, 100).encode()
UNREADABLE = {
    "is empty": b"",
    "is binary": bytes(range(256)) * 100,
    "is UTF-16: iconv": LOG.decode().encode("utf-16"),
    "is packed: xz -dc": b"\xfd7zXZ\0" + bytes(100),
}


def test_bytes_that_are_not_in_one_piece_are_refused():
    job = _native.core().Metrics([1_790_000_000_000_000_000])
    with pytest.raises(BufferError):
        job.feed(0, memoryview(LOG)[::-1])
    job.feed(0, memoryview(LOG)[: len(LOG) // 2])
    assert job.lines() > 0


@pytest.mark.parametrize("said", UNREADABLE)
def test_a_file_that_is_no_log_is_named_with_what_it_is(oddrank, refused, tmp_path, said):
    log, bad = tmp_path / "good.log", tmp_path / "bad"
    log.write_bytes(LOG)
    bad.write_bytes(UNREADABLE[said])
    assert f"{bad} {said}" in refused(bad)
    code, shown, error = oddrank(log, bad, "--json", "-")
    report = json.loads(shown)
    assert (code, report["verdict"]) == (3, "incomplete")
    assert f"left out: {bad} {said}" in error
    assert "99 iterations of 1 log;" in report["summary"]
    assert report["data"]["logs"] == [str(log)]
    assert len(report["data"]["skipped"]) == 1


def test_what_is_no_whole_text_is_read_as_far_as_it_can_be_trusted(oddrank, tmp_path):
    # A log with a spike at its end: what is cut off or damaged is no healthy one.
    packed = gzip.compress(LOG + (lines(100, 400) + lines(400, 500, loss=9)).encode(), 1)
    middle = len(packed) * 55 // 100
    for name, content, verdict, least, most, noted in (
        ("log", bytes(100_000) + b"\n" + LOG, "healthy", 99, 99, ""),  # a hole of truncation
        ("cut.gz", packed[:middle], "incomplete", 100, 398, "was read only in part"),
        ("bad.gz", packed[:middle] + bytes(20) + packed[middle + 20 :], "incomplete", 0, 9999,
         "is damaged, nothing in it is judged"),
        ("log.gz", LOG, "healthy", 99, 99, "is not packed by gzip: it is read as text"),
    ):  # fmt: skip
        (tmp_path / name).write_bytes(content)
        code, said, error = oddrank(tmp_path / name, "--json", "-")
        report = json.loads(said)
        assert (code, report["verdict"]) == ({"healthy": 0}.get(verdict, 3), verdict), name
        assert report["findings"] == [], name
        assert least <= report["data"]["rows"] <= most, name
        assert noted in error, name
        assert len(report["data"]["skipped"]) == bool(noted), name


@pytest.mark.parametrize(
    ("given", "code", "said"),
    [(b"", 2, "stdin is empty"), (gzip.compress(LOG), 0, "99 iterations of 1 log")],
    ids=["empty", "packed"],
)
def test_stdin_may_be_packed_and_not_empty(given, code, said):
    command = [sys.executable, "-m", "oddrank", "metrics", "-"]
    done = subprocess.run(command, input=given, capture_output=True, check=False)
    assert done.returncode == code
    assert said in (done.stdout + done.stderr).decode()


def test_a_pipe_is_read_and_one_without_a_writer_does_not_wait(oddrank, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert oddrank(pipe)[0] == 2
    reader, writer = os.pipe()
    assert os.write(writer, LOG) == len(LOG)
    os.close(writer)
    code, said, _ = oddrank(f"/dev/fd/{reader}")  # as of <(zcat log)
    os.close(reader)
    assert code == 0
    assert "99 iterations of 1 log" in said


def test_times_since_the_start_of_a_run_do_not_mix_its_rows_with_those_of_another(
    oddrank, tmp_path
):
    for name, first in (("a.log", 1), ("b.log", 51)):
        (tmp_path / name).write_text("".join(
            f"{{'loss': {2.5 + n % 3 / 100 + first / 1e4}, 'grad_norm': 0.5,"
            f" 'global_step/max_steps': '{n}/500', 'elapsed_time': '{n - first + 1}s'}}\n"
            for n in range(first, first + 60)
        ))  # fmt: skip
    code, shown, _ = oddrank(tmp_path / "a.log", tmp_path / "b.log", "--json", "-")
    (finding,) = json.loads(shown)["findings"]
    assert (code, finding["cause"]) == (1, "restart")
    assert "a restart after iteration 60 cost 10 iterations" in finding["what"]
