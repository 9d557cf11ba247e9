"""`oddrank logs silent`: each rank's own rhythm, the others', and what is no silence."""

import os
import subprocess
import sys

import pytest

from logs.logs_command import oddrank, report, stamp, written
from oddrank.logs import silence, sources
from oddrank.triage.evidence import Notes


def steps(path, *, ranks=4, seconds=120, every=lambda rank: 1, stops=None, times=True):
    """Writes a log in which each rank writes a line every so many seconds, until it stops."""
    stops = stops or {}
    lines = [
        f"[rank{rank}]: {stamp(second) + ' ' if times else ''}step {second}"
        for second in range(seconds)
        for rank in range(ranks)
        if second % every(rank) == 0 and second < stops.get(rank, seconds)
    ]
    return written(path, *lines)


@pytest.mark.parametrize("times", [True, False])
def test_a_rank_that_stopped_is_named(tmp_path, times):
    log = steps(tmp_path / "job.log", stops={2: 60}, times=times)
    made = report("silent", log, check=1)
    assert made["data"]["unit"] == ("s" if times else "lines")
    (finding,) = made["findings"]
    assert (finding["cause"], finding["who"]["ranks"]) == ("silent", [2])
    assert finding["confidence"]["level"] == "medium"
    first = made["data"]["ranks"][0]
    assert (first["name"], first["stopped"], first["lines"]) == ("rank2", True, 60)
    assert first["last_line"] == 59 * 4 + 3


def test_tags_of_mpirun_are_no_times(tmp_path):
    log = tmp_path / "job.log"
    text = steps(log, stops={2: 60}, times=False).read_text()
    log.write_text(text.replace("[rank", "[1,").replace("]:", "]<stdout>:"))
    made = report("silent", log, check=1)
    assert (made["data"]["unit"], made["findings"][0]["who"]["ranks"]) == ("lines", [2])


def test_a_rank_with_a_slow_rhythm_is_not_silent(tmp_path):
    log = steps(tmp_path / "job.log", every=lambda rank: 12 if rank == 2 else 1, stops={2: 100})
    assert report("silent", log)["verdict"] == "healthy"


def test_ranks_that_all_stopped_are_not_silent(tmp_path):
    log = steps(tmp_path / "job.log", stops=dict.fromkeys(range(4), 60))
    assert report("silent", log)["verdict"] == "healthy"


def test_a_rank_that_speaks_once_is_not_silent(tmp_path):
    log = steps(tmp_path / "job.log")
    with log.open() as file:
        text = file.read()
    log.write_text(f"[rank4]: {stamp(0)} hello\n{text}")
    assert report("silent", log)["verdict"] == "healthy"


def test_a_job_that_prints_from_rank_0_alone_can_not_be_judged(tmp_path):
    log = steps(tmp_path / "job.log", seconds=600, stops=dict.fromkeys((1, 2, 3), 20))
    assert report("silent", log, check=3)["verdict"] == "incomplete"


def test_nobody_is_named_if_most_fell_silent(tmp_path):
    log = steps(tmp_path / "job.log", stops=dict.fromkeys((1, 2, 3), 60))
    made = report("silent", log, check=1)
    assert (made["verdict"], made["findings"][0]["cause"]) == ("unknown", "most-silent")


def test_one_of_two_is_said_with_low_confidence(tmp_path):
    made = report("silent", steps(tmp_path / "job.log", ranks=2, stops={1: 60}), check=1)
    assert made["verdict"] == "unknown"


def test_logs_of_ranks_are_compared_by_time_and_not_without(tmp_path):
    for rank in range(3):
        end = 50 if rank == 1 else 120
        lines = [f"{stamp(second)} step {second}" for second in range(end)]
        written(tmp_path / f"rank_{rank}.log", *lines)
    made = report("silent", tmp_path, check=1)
    assert made["findings"][0]["who"]["ranks"] == [1]
    for path in tmp_path.iterdir():
        written(path, *(line[24:] for line in path.read_text().splitlines()))
    assert report("silent", tmp_path, check=3)["data"]["unit"] is None


def test_a_ranks_logs_without_times_are_left_aside(tmp_path):
    for rank in range(4):
        seconds = range(50 if rank == 1 else 120)
        written(tmp_path / f"rank_{rank}.err", *(f"{stamp(n)} INFO step {n}" for n in seconds))
        written(tmp_path / f"rank_{rank}.out", *(f"step {n}" for n in seconds))
    made = report("silent", tmp_path, check=1)
    assert [finding["who"]["ranks"] for finding in made["findings"]] == [[1]]
    assert made["data"]["skipped"][1].endswith("rank_1.out: left aside: its lines name no times")


def test_a_rank_whose_lines_name_no_times_makes_the_verdict_incomplete(tmp_path):
    for rank in range(4):
        head = stamp if rank else lambda n: "at"
        written(tmp_path / f"rank_{rank}.log", *(f"{head(n)} step {n}" for n in range(20)))
    made = report("silent", tmp_path, check=3)
    assert made["summary"].endswith("rank_0.log: left aside: its lines name no times")


def test_a_rank_that_speaks_in_one_of_its_logs_is_not_silent(tmp_path):
    for rank in range(4):
        written(tmp_path / f"rank_{rank}.out", *(f"{stamp(n)} step {n}" for n in range(120)))
        written(tmp_path / f"rank_{rank}.err", *(f"{stamp(n)} INFO {n}" for n in range(10)))
    assert report("silent", tmp_path)["verdict"] == "healthy"


def live(path, *arrivals):
    """Returns the voices of a growing log, to which ranks wrote at these seconds."""
    path.touch()
    (source,) = sources.followed([str(path)], Notes())
    listener = silence.Listener(source, live=True)
    for second, text in sorted(arrivals):
        listener.feed(f"{text}\n".encode(), 10**18 + int(second * 1e9))
    return silence.voices([listener])


def test_a_growing_log_is_measured_by_when_its_lines_come(tmp_path):
    lines = [(second, f"[rank{rank}]: step") for second in range(60) for rank in range(4)
             if rank != 2 or second < 30]  # fmt: skip
    voices, unit = live(tmp_path / "job.log", *lines)
    assert unit == "s"
    found = silence.judge(voices, unit)
    assert [voice.process.rank for voice in found.voices] == [2]
    assert 29 <= found.voices[0].silent <= 31


def test_times_in_a_growing_logs_lines_count_more_than_when_they_come(tmp_path):
    lines = [(0, f"[rank{rank}]: {stamp(second)} step") for second in range(60)
             for rank in range(4)]  # fmt: skip
    voices, unit = live(tmp_path / "job.log", (-1, "[rank0]: starts"), *lines)
    assert (unit, silence.judge(voices, unit)) == ("s", None)
    assert max(voice.last for voice in voices) == 59


def test_a_followed_log_is_judged_at_the_end(tmp_path):
    log = steps(tmp_path / "job.log", stops={2: 60})
    made = report("silent", log, "--follow", "--for", "0", check=1)
    assert made["findings"][0]["who"]["ranks"] == [2]


def test_the_table_shows_the_longest_silence_first(tmp_path):
    text = oddrank("silent", steps(tmp_path / "job.log", stops={2: 60}), check=1).stdout
    assert "silent (s)" in text
    assert text.index("rank2") < text.index("rank0")


# A rank starts later than another, and torchrun reads each rank's lines by itself: no rank goes on
# before the lines of all are in the log.
TALK = """
import os, time
from pathlib import Path
rank, log = int(os.environ["RANK"]), Path(__file__).with_name("job.log")
lines, end = [40, 20, 40], time.monotonic() + 200
for line in range(1, 41):
    if line <= lines[rank]:
        os.write(1, b"at work\\n")
    while any(log.read_text().count(f"{r}]:at work") < min(line, lines[r]) for r in range(3)):
        assert time.monotonic() < end, "torchrun has not written the lines of all"
        time.sleep(0.01)
"""


@pytest.mark.job
@pytest.mark.needs("torch")
@pytest.mark.timeout(300)
def test_torchruns_tee_tells_who_fell_silent_and_is_split_by_writer(tmp_path):
    script = written(tmp_path / "talk.py", TALK)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "3", "--tee",
                "3"]  # fmt: skip
    log = tmp_path / "job.log"
    with log.open("wb") as file:
        # Unbuffered: torchrun would keep lines, too.
        subprocess.run([*torchrun, script], stdout=file, stderr=file, timeout=240, check=True,
                       env={**os.environ, "PYTHONUNBUFFERED": "1"})  # fmt: skip
    made = report("silent", log, check=1)
    assert [finding["who"]["ranks"] for finding in made["findings"]] == [[1]], log.read_text()
    oddrank("split", log, "-o", tmp_path / "out", "--strip", check=0)
    counts = {path.stem: path.read_text().count("at work\n") for path in tmp_path.glob("out/*.log")}
    assert {name: n for name, n in counts.items() if n} == {"rank0": 40, "rank1": 20, "rank2": 40}
