"""`oddrank triage` as users call it: without a PATH on a real job that hangs, and on bad input."""

import gzip
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from golden import Golden
from oddrank.trace.ranks import read
from patience import until
from processes import Marked, typed
from training import training
from triage.test_nvidia_smi import HEAD, gpu

RAISED = (
    b"[rank3]: Traceback (most recent call last):\n"
    b'[rank3]:   File "train.py", line 9, in main\n[rank3]: ValueError: boom\n'
)
RANK_0 = {"containers": [{"env": [{"name": "RANK", "value": "0"}]}]}
HEALTHY = (
    "[rank0]: 2026-01-01 10:00:00 NCCL INFO Init COMPLETE rank 0 nranks 2\n"
    "[rank0]: step 1\n[rank0]: step 2\n"
)


def refused(*arguments: object) -> str:
    """Returns the only line of a call that read nothing."""
    done = typed("triage", *arguments)
    (line,) = done.stderr.splitlines()
    assert (done.returncode, done.stdout, line[:9]) == (2, "", "oddrank: ")
    return line


@pytest.mark.parametrize(
    "option", ["--json", pytest.param("--html", marks=pytest.mark.needs("jinja2"))]
)
def test_an_input_is_never_overwritten(tmp_path, option):
    log = tmp_path / "job.log"
    log.write_bytes(RAISED)
    (tmp_path / "link").symlink_to("job.log")
    assert "link is also an input: give another file" in refused(log, option, tmp_path / "link")
    assert log.read_bytes() == RAISED


@contextmanager
def hanging_job(folder: Path) -> Iterator[Marked]:
    """Runs the example on four ranks until rank 3 waits for data, and the others for it."""

    def hangs() -> bool:
        assert launcher.poll() is None
        ranks, _ = read(sorted(folder.rglob("rank*.trace")))
        waiting = [any(each.state == "open" for each in rank.collectives) for rank in ranks]
        stands = any("data" in rank.sections for rank in ranks)
        steps = {rank.step for rank in ranks}
        return sorted(waiting) == [False, True, True, True] and steps == {3} and stands

    under = ("-m", "oddrank", "run", "--no-watch")
    with training(folder, "--hang", "data", "--steps", "1000", under=under) as (marked, launcher):
        until(hangs, normal=200)
        yield marked


def verdict(folder: Path) -> dict[str, Any]:
    done = typed("triage", "--json", "-", ODDRANK_DIR=str(folder))
    assert done.returncode in (0, 1), done.stderr
    made: dict[str, Any] = json.loads(done.stdout)
    return made


@pytest.mark.job
@pytest.mark.needs("torch-build")
@pytest.mark.timeout(600)
def test_without_a_path_this_hosts_newest_job_is_judged_alive_and_killed(tmp_path):
    def is_sure(made: dict[str, Any]) -> bool:
        levels = [finding["confidence"]["level"] for finding in made["findings"]]
        return bool(levels) and set(levels) <= {"medium", "high"}

    def becomes_sure() -> bool:
        told.append(verdict(tmp_path))
        return is_sure(told[-1])

    told: list[dict[str, Any]] = []
    with hanging_job(tmp_path) as marked:
        # A job that has only begun to wait may go on.
        until(becomes_sure, normal=200)
        marked.kill_all()
        until(lambda: not marked.living())
        killed = verdict(tmp_path)
    for made in (told[-1], killed):
        (finding,) = made["findings"]
        assert (finding["condition"], finding["who"]["ranks"]) == ("stuck", [3])
        assert is_sure(made)
        assert made["data"]["suspects"][0]["waiting"] != []
    words = " ".join(str(point) for point in killed["findings"][0]["evidence"])
    assert "next_batch" in words


def test_input_that_tells_nothing_is_refused_in_a_line(
    tmp_path: Path, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("empty", "links"):
        (tmp_path / name).mkdir()
    (tmp_path / "zeros").write_bytes(bytes(1 << 20))
    (tmp_path / "cut.gz").write_bytes(gzip.compress(bytes(4096))[:-9])
    (tmp_path / "links" / "dump").symlink_to(tmp_path / "nowhere")
    (tmp_path / "train log").write_text("iter 1: loss 4.5, time 120.1ms\n" * 9)
    names = ("missing", "empty", "zeros", "train log", "cut.gz", "links")
    lines = [refused(tmp_path / name) for name in names]
    monkeypatch.setenv("ODDRANK_DIR", str(tmp_path / "empty"))
    lines.append(refused())
    golden("\n".join(lines).replace(f"{tmp_path}/", ""))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_refused_in_a_line(tmp_path):
    (tmp_path / "log").write_bytes(RAISED)
    (tmp_path / "log").chmod(0)
    assert "not readable" in refused(tmp_path / "log")


@pytest.mark.parametrize(
    ("name", "content", "verdict"),
    [("job.log.gz", gzip.compress(b"step 1\n")[:-9], "incomplete"),
     ("job.7z", b"7z\xbc\xaf\x27\x1c\0\4" + bytes(99), "incomplete"),
     ("notes.txt", b"nothing of interest\n", "healthy"),
     ("empty.log", b"", "healthy")],
    ids=["a broken archive", "an unknown archive", "a text", "an empty file"],
)  # fmt: skip
def test_a_job_is_healthy_only_if_all_that_was_given_was_read(
    tmp_path: Path, name: str, content: bytes, verdict: str
) -> None:
    (tmp_path / name).write_bytes(content)
    log = tmp_path / "gpu.log"
    log.write_text(HEALTHY)
    done = typed("triage", "--json", "-", log, tmp_path / name)
    made = json.loads(done.stdout)
    assert (made["verdict"], done.returncode) == (verdict, 3 * (verdict == "incomplete"))
    assert (f"{name}: " in made["summary"]) == (verdict == "incomplete")


def test_what_machines_say_of_themselves_is_no_sign_that_ranks_moved(tmp_path):
    smi = tmp_path / "smi.txt"
    smi.write_text(HEAD + gpu())
    pods = tmp_path / "pods.json"
    running = {"kind": "Pod", "metadata": {"name": "w-0"}, "status": {"phase": "Running"}}
    pods.write_text(json.dumps({"apiVersion": "v1", **running, "spec": RANK_0}))
    for given in ([smi], [pods], [smi, pods]):
        done = typed("triage", "--json", "-", *given)
        made = json.loads(done.stdout)
        assert (made["verdict"], done.returncode) == ("unknown", 1)
        assert "nothing shows that ranks moved or ended well" in made["summary"]


def test_a_log_that_begins_with_a_table_of_gpus_still_tells_of_trouble(tmp_path):
    log = tmp_path / "slurm-7.out"
    log.write_text(HEAD + gpu() + "CRITICAL: a worker died\n")
    made = json.loads(typed("triage", "--json", "-", log).stdout)
    assert made["verdict"] == "unknown"
    assert "the first that tells of trouble: CRITICAL: a worker died" in made["summary"]
