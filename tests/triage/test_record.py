"""Real jobs break, and their records say what they know: live, collected, and after the end."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import pytest

import forked
from oddrank.inputs import Notes
from oddrank.trace import ranks
from oddrank.triage import facts
from oddrank.triage import report as triage
from oddrank.triage.evidence import record
from oddrank.triage.verdict import suspects
from oddrank.triage.view import view
from patience import until
from processes import held_port
from triage.facts_of import item_of

pytestmark = [pytest.mark.needs("torch-build"), pytest.mark.timeout(600), pytest.mark.job]
JOB = Path(__file__).with_name("record_job.py")
CULPRIT = 2
OTHERS = (0, 1, 3)
T = TypeVar("T")


@dataclass
class Read:
    """The facts of a folder of records."""

    facts: list[facts.Fact]
    notes: Notes

    def of(self, kind: type[T], rank: int = CULPRIT) -> list[T]:
        return [fact for fact in self.all(kind) if fact.process.rank == rank]  # type: ignore

    def all(self, kind: type[T]) -> list[T]:
        return [fact for fact in self.facts if isinstance(fact, kind)]

    def world_group(self, rank: int) -> facts.Progress:
        (found,) = (p for p in self.of(facts.Progress, rank) if p.group.text == "default_pg")
        return found

    def pause(self, rank: int = CULPRIT) -> float:
        """Returns the time since the rank's last event, in seconds."""
        (activity,) = self.of(facts.Activity, rank)
        return activity.seen - activity.last  # type: ignore

    def functions(self, rank: int = CULPRIT) -> list[str]:
        """Returns the functions of the rank's main thread, innermost first."""
        (found,) = (
            stack
            for stack in self.all(facts.Stack)
            for thread in stack.threads
            if (thread.process.rank, thread.name) == (rank, "MainThread")
        )
        return [frame.function for frame in found.frames]


def read(folder: Path) -> Read:
    notes = Notes()
    items = [item_of(file, str(file)) for file in sorted(folder.rglob("*")) if file.is_file()]
    return Read(list(record.KIND.read([i for i in items if record.KIND.sniff(i)], notes)), notes)


@dataclass
class Job:
    folder: Path
    processes: list[subprocess.Popen[bytes]]

    @property
    def records(self) -> Path:
        return self.folder / "records"

    def said(self, rank: int) -> str:
        return (self.folder / f"out{rank}").read_text()

    def is_ready(self, rank: int) -> bool:
        return "ready" in self.said(rank) or self.processes[rank].poll() is not None

    def until(self, true: Callable[[], bool]) -> None:
        try:
            until(true, normal=200)
        except AssertionError:
            pytest.fail("\n".join(self.said(rank) for rank in range(4)))

    def found(self, true: Callable[[Read], bool]) -> Read:
        """Returns what the records say once it is true: it may be so some time after "ready"."""
        last: list[Read] = []

        def holds() -> bool:
            last[:] = [read(self.records)]
            return true(last[0])

        self.until(holds)
        return last[0]

    def collected(self) -> Path:
        target = self.folder / "collected"
        command = [sys.executable, "-m", "oddrank", "collect", "--deadline", "600"]
        command += ["-o", str(target), str(self.records)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return target


@contextmanager
def job(folder: Path, fault: str) -> Iterator[Job]:
    """Runs four ranks until those that still run can come no further."""
    made = Job(folder, [])
    with held_port() as port:
        common = {
            **os.environ, "ODDRANK_DIR": str(folder / "records"), "WORLD_SIZE": "4",
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        try:
            for rank in range(4):
                with (folder / f"out{rank}").open("wb") as out:
                    environ = {**common, "RANK": str(rank), "LOCAL_RANK": str(rank)}
                    made.processes.append(
                        forked.popen(
                            [sys.executable, JOB, fault], env=environ, stdout=out, stderr=out
                        )
                    )
            # gloo may end a rank that finds another size than its own.
            made.until(lambda: all(made.is_ready(rank) for rank in OTHERS))
            yield made
        finally:
            for process in made.processes:
                process.kill()
                process.wait()


def waits_at_the_fourth(found: Read, rank: int) -> None:
    progress = found.world_group(rank)
    assert (progress.enqueued, progress.completed) == (4, 3)
    (call,) = progress.open
    assert (call.op, call.seq, call.dtype, call.sizes) == ("all_reduce", 4, "float32", "8")
    assert call.state == "started"
    assert "main" in [frame.function for frame in call.site]
    assert progress.group.ranks == (0, 1, 2, 3)
    assert progress.backend == "gloo"
    assert progress.whole


def all_wait(found: Read) -> bool:
    return all(len(found.world_group(rank).open) == 1 for rank in OTHERS)


def has_not_entered(found: Read, rank: int = CULPRIT) -> None:
    progress = found.world_group(rank)
    assert (progress.enqueued, progress.completed, progress.open) == (3, 3, ())
    assert progress.whole


@pytest.mark.smoke
def test_a_stopped_rank_is_stopped_live_and_in_its_copy_however_late_that_is_read(tmp_path):
    with job(tmp_path, "stopped") as running:
        running.found(lambda found: found.functions()[0] == "<lambda>" and all_wait(found))
        running.processes[CULPRIT].send_signal(signal.SIGSTOP)
        running.until(lambda: read(running.records).of(facts.State)[0].state == "stopped")
        live = read(running.records)
        copy = running.collected()
    for found in (live, read(copy)):
        assert found.notes.lines == []
        assert [state.state for state in found.of(facts.State)] == ["stopped"]
        assert {s.state for r in OTHERS for s in found.of(facts.State, r)} == {"running"}
        has_not_entered(found)
        for rank in OTHERS:
            waits_at_the_fourth(found, rank)
            (pair,) = (p for p in found.of(facts.Progress, rank) if p.group.text != "default_pg")
            assert pair.group.ranks == ((0, 1) if rank < 2 else (2, 3))
            assert (pair.enqueued, pair.completed, pair.open) == (3, 3, ())
        assert found.all(facts.World)[0].size == 4
        assert {i.process.rank for i in found.all(facts.Identity)} == {0, 1, 2, 3}
        (activity,) = found.of(facts.Activity)
        assert (activity.step, activity.runs) == (2, False)
        assert found.pause() > 0
        assert not found.all(facts.Death)
        assert not found.all(facts.Mismatch)
        assert found.functions()[0] == "<lambda>"
    is_named_if_only_its_guards_silence_is_known(copy, tmp_path / "silent")
    # Without the file of states, nobody can say who lived when the records were copied.
    for file in copy.rglob("states.json"):
        file.unlink()
    later = read(copy)
    assert {state.state for state in later.all(facts.State)} == {"dead"}
    assert not later.all(facts.Death)


def is_named_if_only_its_guards_silence_is_known(copy, folder):
    shutil.copytree(copy, folder)
    (file,) = folder.rglob("states.json")
    seen = {one.rank: one for one in ranks.parse_states(json.loads(file.read_text()))}
    seen[CULPRIT] = replace(seen[CULPRIT], state=ranks.SILENT, started=0, threads={})
    file.write_text(ranks.states_text(seen.values()))
    for own in folder.rglob(f"rank{CULPRIT}-*"):
        own.unlink()
    (finding,) = triage.made(triage.read([str(folder)])).findings
    assert (finding.who.ranks, finding.cause) == ((CULPRIT,), "unreachable")
    # Medium while the others have waited for a short time only, which a busy machine makes longer.
    assert finding.confidence.level in ("medium", "high")


def test_a_killed_rank_is_dead_by_its_signal_until_somebody_asks_for_it(tmp_path):
    with job(tmp_path, "killed") as running:
        running.until(lambda: "ready" in running.said(CULPRIT))
        running.processes[CULPRIT].kill()
        running.until(lambda: bool(read(running.records).of(facts.Death)))
        (death,) = read(running.records).of(facts.Death)
        assert (death.how, death.signal) == ("signal", signal.SIGKILL)
        copy = running.collected()
        running.processes[CULPRIT].wait()
        (unasked,) = read(running.records).of(facts.Death)
        assert (unasked.how, unasked.signal) == ("signal", None)
        for rank in OTHERS:
            running.processes[rank].wait(200)
        victims = read(running.records)
    for rank in OTHERS:
        (lost,) = victims.of(facts.Death, rank)
        assert (lost.how, lost.failed) == ("exception", "all_reduce")
        progress = victims.world_group(rank)
        assert (progress.timed_out, progress.open[0].seq) == (True, 4)
        assert 0 < progress.time <= lost.time
    (later,) = read(copy).of(facts.Death)
    assert later.signal == signal.SIGKILL
    assert [state.state for state in read(copy).of(facts.State)] == ["dead"]
    has_not_entered(read(copy))
    # Another file of states, by somebody who came too late to see how it ended.
    (file,) = copy.rglob("states.json")
    late = file.read_text().replace('"signal": 9', '"signal": null')
    for name in ("a", "z"):
        (file.parent / name).mkdir()
        (file.parent / name / "states.json").write_text(late)
        assert late != file.read_text()
        assert read(copy).of(facts.Death)[0].signal == signal.SIGKILL


@pytest.mark.parametrize(("fault", "differs"), [("size", "sizes"), ("dtype", ""), ("order", "")])
def test_ranks_that_issued_other_calls_are_told_apart(tmp_path, fault, differs):
    calls = 5 if fault == "order" else 4
    with job(tmp_path, fault) as running:
        # gloo may end a rank in its first call that is unlike the others'.
        def issued(found: Read) -> bool:
            return all(
                (found.world_group(rank).enqueued or 0) >= calls
                or running.processes[rank].poll() is not None
                for rank in range(4)
            )

        (found,) = running.found(issued).all(facts.Mismatch)
    assert (found.group.ranks, found.seq, found.differs) == ((0, 1, 2, 3), 4, differs or fault)
    usual, odd = found.variants
    assert (usual.ranks, odd.ranks) == (OTHERS, (CULPRIT,))
    if fault == "dtype":
        assert (usual.call.dtype, odd.call.dtype) == ("float32", "float64")
    if fault == "order":
        assert (usual.call.op, odd.call.op) == ("all_reduce", "broadcast")


def test_an_open_receive_has_its_peer(tmp_path):
    with job(tmp_path, "peer") as running:
        found = running.found(lambda found: bool(found.world_group(3).open))
    (call,) = found.world_group(3).open
    assert (call.op, call.peer, call.seq) == ("recv", CULPRIT, 1)
    assert found.world_group(3).enqueued == 3


@pytest.mark.smoke
def test_messages_of_some_ranks_shift_no_number_of_a_call_and_block_nobody(tmp_path):
    # gloo numbers them along with collectives: its number of the same call is 8 on ranks 0 and 1.
    with job(tmp_path, "messages") as running:
        found = running.found(
            lambda found: [len(found.world_group(rank).open) for rank in OTHERS] == [3, 3, 1]
        )
    has_not_entered(found)
    waits_at_the_fourth(found, 3)
    for rank in (0, 1):
        progress = found.world_group(rank)
        assert (progress.enqueued, progress.completed) == (4, 3)
        open_calls = {(call.op, call.peer, call.seq, call.nth) for call in progress.open}
        both = {("send", 1 - rank, 2, 2), ("recv", 1 - rank, 2, 2)}
        assert open_calls == {("all_reduce", None, 4, None)} | both
    (suspect,) = suspects(view(found.facts))
    assert [process.rank for process in suspect.processes] == [CULPRIT]
    assert [process.rank for process in suspect.waiting] == list(OTHERS)
    unheard = [
        fact for fact in found.facts
        if getattr(getattr(fact, "process", None), "rank", None) != CULPRIT
        and not isinstance(fact, facts.Stack)
    ]  # fmt: skip
    (suspect,) = suspects(view(unheard))
    assert (suspect.cause.name, suspect.processes[0].rank) == ("not-entered-or-inside", CULPRIT)


def records_itself(program: str, environ: dict[str, str]) -> None:
    code = f"import oddrank; oddrank.arm()\n{program}"
    subprocess.run([sys.executable, "-c", code], env={**os.environ, **environ}, check=True)


def test_a_record_without_room_for_the_progress_of_a_group_is_not_whole(tmp_path):
    program = (
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "for _ in range(40):\n"
        "    dist.all_reduce(torch.ones(1), group=dist.new_group([0]))\n"
    )
    environ = {
        "ODDRANK_DIR": str(tmp_path), "ODDRANK_TRACE_MB": "0.5", "RANK": "0", "LOCAL_RANK": "0",
        "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0",
    }  # fmt: skip
    records_itself(program, environ)
    found = read(tmp_path)
    assert len(found.all(facts.Progress)) == 32
    assert not any(progress.whole for progress in found.all(facts.Progress))
    assert [line for line in found.notes.lines if "no room for 8 groups" in line]


def test_of_several_jobs_the_newest_counts_and_of_each_its_last_run(tmp_path):
    for name in ("older", "newer"):
        for rank in ("0", "1"):
            environ = {
                "ODDRANK_DIR": str(tmp_path / name), "RANK": rank, "LOCAL_RANK": rank,
                "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": name,
            }  # fmt: skip
            records_itself("oddrank.step(1)", environ)
    found = read(tmp_path)
    assert {Path(i.source.file).parts[-3] for i in found.all(facts.Identity)} == {"newer"}
    assert [line for line in found.notes.lines if "an older run: its 2 records" in line]
    (folder,) = {file.parent for file in (tmp_path / "older").rglob("*.trace")}
    said = triage.made(triage.read([str(tmp_path)])).summary
    assert f"2 jobs are here, this is the newest; another: oddrank triage {folder}" in said
    assert "not read" not in said


def test_a_rank_that_an_earlier_run_lost_is_not_missing_in_this_one(tmp_path):
    environ = {"ODDRANK_DIR": str(tmp_path), "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "4",
               "TORCHELASTIC_RUN_ID": "run"}  # fmt: skip
    records_itself("oddrank.step(1)", environ)
    for hours, dead in ((2, []), (0, [3])):
        at = time.time() - 3600 * hours
        lost = ranks.Seen(3, "node-b", 7, 8, "zombie", at, signal=9, ended=at)
        (tmp_path / "run" / ranks.STATES_FILE).write_text(ranks.states_text([lost]))
        found = read(tmp_path).all(facts.Death)
        assert [one.process.rank for one in found if one.signal] == dead


def test_garbage_gives_a_line(tmp_path):
    (tmp_path / "rank0.trace").write_bytes(b"oddrank\n" + b"x" * 9000)
    (tmp_path / "states.json").write_text('{"schema": "oddrank.states/1", "processes": [4]}')
    found = read(tmp_path)
    assert found.facts == []
    assert len(found.notes.lines) == 2
