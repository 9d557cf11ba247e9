"""`oddrank metrics` reads or refuses logs: packed, cut off, binary, empty, pipes."""

import gzip
import json
import os
import subprocess
import sys

import pytest

from metrics.training_log import line

LOG = "".join(f"{line(n, 2.5 + n % 3 / 100)}\n" for n in range(1, 100)).encode()


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "good.log"
    path.write_bytes(LOG)
    return path


UNREADABLE = {
    "is empty": b"",
    "is binary": bytes(range(256)) * 100,
    "is UTF-16: iconv": LOG.decode().encode("utf-16"),
    "is packed: xz -dc": b"\xfd7zXZ\0" + bytes(100),
}


@pytest.mark.parametrize("said", UNREADABLE)
def test_a_file_that_is_no_log_is_named_with_what_it_is(oddrank, log, tmp_path, said):
    bad = tmp_path / "bad"
    bad.write_bytes(UNREADABLE[said])
    code, shown, error = oddrank(bad)
    assert (code, shown) == (2, "")
    assert f"{bad} {said}" in error
    assert len(error.splitlines()) == 1
    code, shown, error = oddrank(log, bad, "--json", "-")
    assert code == 0
    assert f"left out: {bad} {said}" in error
    report = json.loads(shown)
    assert "99 iterations of 1 log;" in report["summary"]
    assert report["data"]["logs"] == [str(log)]
    assert len(report["data"]["skipped"]) == 1


def test_each_unreadable_file_is_named(oddrank, tmp_path):
    for name, content in (("a", b""), ("b", bytes(range(256)))):
        (tmp_path / name).write_bytes(content)
    code, _, error = oddrank(tmp_path / "a", tmp_path / "b")
    assert code == 2
    assert "a is empty" in error
    assert "b is binary" in error


def test_a_hole_that_truncation_left_at_the_beginning_is_no_binary_file(oddrank, tmp_path):
    holed = tmp_path / "log"
    holed.write_bytes(bytes(100_000) + b"\n" + LOG)
    assert json.loads(oddrank(holed, "--json", "-")[1])["data"]["rows"] == 99


def test_a_packed_log_that_is_cut_off_is_read_as_far_as_it_goes(oddrank, tmp_path):
    packed = gzip.compress(LOG, compresslevel=1)
    broken = tmp_path / "broken.gz"
    broken.write_bytes(packed[: len(packed) * 9 // 10])
    code, said, error = oddrank(broken, "--json", "-")
    report = json.loads(said)
    assert code == 0
    assert 45 < report["data"]["rows"] < 99
    assert f"{broken} was read only in part" in error
    assert len(report["data"]["skipped"]) == 1


def test_a_gz_that_is_not_packed_is_read_as_text(oddrank, tmp_path):
    plain = tmp_path / "log.gz"
    plain.write_bytes(LOG)
    code, said, error = oddrank(plain)
    assert code == 0
    assert "metrics: healthy" in said
    assert "is not packed by gzip: it is read as text" in error


@pytest.mark.parametrize(
    ("given", "code", "said"),
    [(b"", 2, "stdin is empty"), (gzip.compress(LOG), 0, "99 iterations of 1 log")],
    ids=["empty", "packed"],
)
def test_stdin_may_be_packed_and_not_empty(given, code, said):
    command = [sys.executable, "-m", "oddrank", "metrics", "-"]
    done = subprocess.run(command, input=given, capture_output=True, timeout=100, check=False)
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
    def write(name, first):
        rows = [
            f"{{'loss': {2.5 + n % 3 / 100 + first / 1e4}, 'grad_norm': 0.5,"
            f" 'global_step/max_steps': '{n}/500', 'elapsed_time': '{n - first + 1}s'}}\n"
            for n in range(first, first + 60)
        ]
        (tmp_path / name).write_text("".join(rows))
        return tmp_path / name

    code, shown, _ = oddrank(write("a.log", 1), write("b.log", 51), "--json", "-")
    report = json.loads(shown)
    assert [finding["cause"] for finding in report["findings"]] == ["restart"]
    assert report["findings"][0]["what"].startswith(
        "the training was started again after iteration 60 and did 10 iterations again"
    )
    assert code == 1
