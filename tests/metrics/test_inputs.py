"""`oddrank metrics` reads or refuses logs: packed, cut off, binary, empty, pipes."""

import gzip
import json
import os
import subprocess
import sys

import pytest

from metrics.training_log import lines

LOG = lines(1, 100).encode()
UNREADABLE = {
    "is empty": b"",
    "is binary": bytes(range(256)) * 100,
    "is UTF-16: iconv": LOG.decode().encode("utf-16"),
    "is packed: xz -dc": b"\xfd7zXZ\0" + bytes(100),
}


@pytest.mark.parametrize("said", UNREADABLE)
def test_a_file_that_is_no_log_is_named_with_what_it_is(oddrank, refused, tmp_path, said):
    log, bad = tmp_path / "good.log", tmp_path / "bad"
    log.write_bytes(LOG)
    bad.write_bytes(UNREADABLE[said])
    assert f"{bad} {said}" in refused(bad)
    code, shown, error = oddrank(log, bad, "--json", "-")
    assert code == 0
    assert f"left out: {bad} {said}" in error
    report = json.loads(shown)
    assert "99 iterations of 1 log;" in report["summary"]
    assert report["data"]["logs"] == [str(log)]
    assert len(report["data"]["skipped"]) == 1


def test_what_is_no_whole_text_is_read_as_far_as_it_goes(oddrank, tmp_path):
    packed = gzip.compress(LOG, compresslevel=1)
    for name, content, least, most, noted in (
        ("log", bytes(100_000) + b"\n" + LOG, 99, 99, ""),  # a hole that truncation left
        ("broken.gz", packed[: len(packed) * 9 // 10], 46, 98, "was read only in part"),
        ("log.gz", LOG, 99, 99, "is not packed by gzip: it is read as text"),
    ):
        (tmp_path / name).write_bytes(content)
        code, said, error = oddrank(tmp_path / name, "--json", "-")
        report = json.loads(said)
        assert (code, report["verdict"]) == (0, "healthy"), name
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
    assert "after iteration 60 and did 10 iterations again" in finding["what"]
