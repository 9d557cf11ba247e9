"""`oddrank logs silent`: each rank's own rhythm, the others', and what is no silence."""

import os
import subprocess
import sys

import pytest

from logs.logs_command import oddrank, report, shown, stamp, written
from oddrank.logs import findings, silence, sources
from oddrank.triage.evidence import Notes
from oddrank.triage.facts import Process
from patience import PATIENCE


def steps(ranks=4, seconds=120, every=(1, 1, 1, 1), stops=None, times=True):
    """Lines of ranks that write one every so many seconds, until they stop."""
    stops = stops or {}
    return [
        f"[rank{rank}]: {stamp(second) + ' ' if times else ''}step {second}"
        for second in range(seconds)
        for rank in range(ranks)
        if second % every[rank] == 0 and second < stops.get(rank, seconds)
    ]


def of_rank(seconds, head=stamp, text="step"):
    return [f"{head(n)} {text} {n}".strip() for n in range(seconds)]


def bare(second):
    return ""


ONE_STOPS, ALL_BUT_0 = {2: 60}, dict.fromkeys((1, 2, 3), 60)
# Logs by their names; the exit code, the unit, and the ranks that are named.
ROWS = {
    "a rank that stopped": ({"job.log": steps(stops=ONE_STOPS)}, 1, "s", [2]),
    "a rank that stopped, without times":
        ({"job.log": steps(stops=ONE_STOPS, times=False)}, 1, "lines", [2]),
    "tags of mpirun are no times":
        ({"job.log": [line.replace("[rank", "[1,").replace("]:", "]<stdout>:")
                      for line in steps(stops=ONE_STOPS, times=False)]}, 1, "lines", [2]),
    "a slow rhythm": ({"job.log": steps(every=(1, 1, 12, 1), stops={2: 100})}, 0, "s", []),
    "all stopped": ({"job.log": steps(stops=dict.fromkeys(range(4), 60))}, 0, "s", []),
    "a rank that speaks once": ({"job.log": [f"[rank4]: {stamp(0)} hello", *steps()]}, 0, "s", []),
    "a job that prints from rank 0 alone":
        ({"job.log": steps(seconds=600, stops=dict.fromkeys((1, 2, 3), 20))}, 3, "s", []),
    "most fell silent": ({"job.log": steps(stops=ALL_BUT_0)}, 1, "s", [1, 2, 3]),
    "one of two": ({"job.log": steps(ranks=2, stops={1: 60})}, 1, "s", [1]),
    "a log a rank":
        ({f"rank_{r}.log": of_rank(50 if r == 1 else 120) for r in range(3)}, 1, "s", [1]),
    "a log a rank, without times":
        ({f"rank_{r}.log": of_rank(50 if r == 1 else 120, bare) for r in range(3)}, 3, None, []),
    "two logs a rank, one without times":
        ({name: of_rank(50 if r == 1 else 120, head) for r in range(4)
          for name, head in ((f"rank_{r}.err", stamp), (f"rank_{r}.out", bare))}, 1, "s", [1]),
    "a rank whose lines name no times":
        ({f"rank_{r}.log": of_rank(20, stamp if r else bare) for r in range(4)}, 3, "s", []),
    "a rank of eight lines without times, among others":
        ({"job.log": [*steps(), *["[rank4]: bye"] * 8]}, 0, "lines", []),
    "a rank of seven": ({"job.log": [*steps(), *["[rank4]: bye"] * 7]}, 0, "s", []),
    "one of two ranks, whose lines name no times":
        ({f"rank_{r}.log": of_rank(20, stamp if r else bare) for r in range(2)}, 3, "s", []),
    "a rank that speaks in one of its logs":
        ({name: of_rank(most) for r in range(4)
          for name, most in ((f"rank_{r}.out", 120), (f"rank_{r}.err", 10))}, 0, "s", []),
    "a rank that writes much to one log at first, and little to another on":
        ({**{f"rank_{r}.log": of_rank(120) for r in (1, 2, 3)}, "rank_0.out": of_rank(60),
          "rank_0.err": [f"{stamp(10 * n)} note {n}" for n in range(12)]}, 0, "s", []),
}  # fmt: skip


def test_ranks_that_stopped_while_others_went_on_are_named(tmp_path, golden):
    said = []
    for number, (name, (logs, code, unit, named)) in enumerate(ROWS.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        for log, lines in logs.items():
            written(folder / log, *lines)
        made = report("silent", folder, check=code)
        assert made["data"]["unit"] == unit, name
        assert [r for f in made["findings"] for r in f["who"]["ranks"]] == named, name
        if unit and named:
            assert [row["rank"] for row in made["data"]["ranks"] if row["stopped"]] == named, name
        said.append(f"{name}\n{shown(oddrank('silent', folder, check=code), folder)}")
    golden("\n".join(said))


def voice(rank, silent=0.0, *, lines=100, span=100.0, usual=1.0, longest=2.0):
    return silence.Voice(
        Process(rank), "job.log", lines, lines, span, silent, span, usual, longest
    )  # fmt: skip


WELL = [voice(rank) for rank in (7, 8, 9)]


def test_silence_is_measured_by_the_own_rhythm_and_by_the_others():
    others = [voice(r, 20.0, longest=30) for r in range(1, 9)]
    for voices, named in (
        ([voice(0, 5.0)], []),  # twice the longest pause, and what clocks may be apart
        ([voice(0, 5.1)], [0]),
        ([voice(0, 7.0, usual=2.0)], []),  # thrice the usual one
        ([voice(0, 7.1, usual=2.0)], [0]),
        ([voice(0, 50.0, lines=7)], []), ([voice(0, 50.0, lines=8)], [0]),
        ([voice(0, 50.0, span=9.9)], []),  # it spoke only at the start
        ([voice(0, 50.0, span=10.0)], [0]),
        ([voice(0, 50.0, span=10.0), *others], []), ([voice(0, 60.0), *others], []),
        ([voice(0, 60.1), *others], [0]),
        ([voice(0, 9.0), voice(1, 9.0)], [0, 1]),
    ):  # fmt: skip
        found = silence.judge([*voices, *WELL], "s")
        assert (found and [v.process.rank for v in found.voices]) == (named or None), voices
        assert silence.judge(voices, "s") is None or len(voices) > 2


def test_as_many_that_stopped_as_went_on_are_most(golden):
    gone = [voice(rank, 50.0 + rank) for rank in range(3)]
    said = []
    for stopped, unit in ((gone[:1], "s"), (gone[:1], "lines"), (gone[:2], "s"), (gone, "s")):
        found = silence.judge([*stopped, *WELL], unit)
        assert found.most == (len(stopped) == 3)
        data = silence.data([*stopped, *WELL], unit, found)
        made = findings.silent(found, silence.comparable([*stopped, *WELL]), data)
        said += ["  ".join(map(str, row)) for row in silence.rows(data, 2)]
        for one in made.findings:
            said += [f"  {one.condition} {one.who}: {one.what}", *map(str, one.evidence)]
            said.append(f"  {one.confidence} {one.next}")
    golden("\n".join(said))


def live(path, *arrivals):
    """Returns the voices of a growing log, to which ranks wrote at these seconds."""
    path.touch()
    (source,) = sources.followed([str(path)], Notes())
    listener = silence.Listener(source, live=True)
    for second, text in sorted(arrivals):
        listener.feed(f"{text}\n".encode(), 10**18 + int(second * 1e9))
    return silence.voices([listener])


def test_a_growing_log_is_measured_by_when_its_lines_come_or_by_their_times(tmp_path):
    each = [(second, rank) for second in range(60) for rank in range(4)]
    talk = [(second, f"[rank{rank}]: step") for second, rank in each if rank != 2 or second < 30]
    voices, unit = live(tmp_path / "job.log", *talk)
    found = silence.judge(voices, unit)
    assert (unit, [voice.process.rank for voice in found.voices]) == ("s", [2])
    assert 29 <= found.voices[0].silent <= 31
    timed = [(0, f"[rank{rank}]: {stamp(second)} step") for second, rank in each]
    voices, unit = live(tmp_path / "other.log", (-1, "[rank0]: starts"), *timed)
    assert (unit, silence.judge(voices, unit)) == ("s", None)
    assert max(voice.last for voice in voices) == 59


def test_a_followed_log_is_judged_at_the_end(tmp_path):
    log = written(tmp_path / "job.log", *steps(stops=ONE_STOPS))
    made = report("silent", log, "--follow", "--for", "0", check=1)
    assert made["findings"][0]["who"]["ranks"] == [2]


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
        subprocess.run([*torchrun, script], stdout=file, stderr=file, timeout=PATIENCE.job,
                       check=True, env={**os.environ, "PYTHONUNBUFFERED": "1"})  # fmt: skip
    made = report("silent", log, check=1)
    named = [finding["who"]["device"] for finding in made["findings"]]
    assert named == ["local rank 1"], log.read_text()
    oddrank("split", log, "-o", tmp_path / "out", "--strip", check=0)
    counts = {path.stem: path.read_text().count("at work\n") for path in tmp_path.glob("out/*.log")}
    assert {name: n for name, n in counts.items() if n} == {
        "local-rank-0": 40, "local-rank-1": 20, "local-rank-2": 40
    }  # fmt: skip
