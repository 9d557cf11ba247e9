"""Logs with zero bytes are read; files that are no logs are left out, and this is said."""

import pickle

from logs.logs_command import oddrank, report, written

STEPS = [f"[rank{n % 4}]: 2026-01-01 00:00:{n:02} step {n}" for n in range(40)]
FAILURE = ["[rank2]: Traceback (most recent call last):", '[rank2]:   File "a.py", line 1, in f',
           "[rank2]: ValueError: boom"]  # fmt: skip
DUMP = pickle.dumps({"entries": [{"frames": [{"name": "f\n", "line": n}]} for n in range(99)]}, 2)


def test_a_log_with_zero_bytes_is_read(tmp_path):
    log = written(tmp_path / "job.log", "first", *STEPS, *FAILURE)
    text = log.read_bytes()
    for where in (
        b"\0" * 100 + text,
        b"\0" * (1 << 20) + text,  # truncated under its writer (copytruncate)
        text[:300] + b"\0" * 4096 + text[300:],  # a write that NFS lost
        text.replace(b"step 7", b"step \0"),
    ):
        log.write_bytes(where)
        made = report("first-error", log, check=1)
        assert made["findings"][0]["who"]["ranks"] == [2]
        assert made["data"]["skipped"] == []


def test_a_binary_file_that_was_given_makes_a_healthy_verdict_incomplete_and_hides_no_failure(
    tmp_path,
):
    log, binary = written(tmp_path / "job.log", *STEPS), tmp_path / "dump"
    binary.write_bytes(DUMP)
    made = report("first-error", log, binary, check=3)
    assert made["verdict"] == "incomplete"
    assert made["summary"].endswith(f"not read: {binary}: left out: it is binary")
    # A folder may hold other things than logs, and empty logs tell of no failure.
    written(tmp_path / "empty.log")
    made = report("first-error", tmp_path)
    assert made["verdict"] == "healthy"
    why = [line.rpartition(" ")[2] for line in made["data"]["skipped"]]
    assert why == ["binary", "empty"]
    written(log, *FAILURE)
    assert report("first-error", log, binary, check=1)["verdict"] == "odd"


def test_a_file_that_is_no_log_says_why(tmp_path):
    path = tmp_path / "file"
    for content, why in ((b"", "empty"), (DUMP, "binary"), (b"\0" * 200_000, "binary")):
        path.write_bytes(content)
        assert f"it is {why}" in oddrank("first-error", path, check=2).stderr
