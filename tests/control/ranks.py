"""Starts the ranks of a job as plain processes, breaks them, and reads the judge's verdict."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from processes import Marked, injected

# Seconds after the deadline until every process must be gone; SLACK is for a slow machine.
GRACE = 2.0
SLACK = 1.0


class Ranks:
    """One job. All its processes, also guards and judge, have a mark in their environment."""

    program = Path(__file__).with_name("rank_program.py")

    def __init__(
        self,
        folder: Path,
        world: int,
        *,
        inject: str = "",
        at: str = "",
        deadline: float = 60.0,
        stage: float = 30.0,
        join: float = 30.0,
        nodes: int = 1,
        never: tuple[int, ...] = (),
        environ: Mapping[str, str] | None = None,
        environ_of: Mapping[int, Mapping[str, str]] | None = None,
        prefix_of: Mapping[int, Sequence[str]] | None = None,
        **faults: int,
    ) -> None:
        """inject, at, faults: as in job(). environ_of, prefix_of: rank -> its own.

        deadline, stage, join: seconds; those given here are for jobs that end before. Where a rank
        never comes, or a guard or the judge is stopped, a job lasts until its deadline.
        """
        self.folder = folder
        self.mark = Marked()
        self.deadline = deadline
        self.started = time.time()
        self.stderr = folder / "stderr"
        self.workers: dict[int, subprocess.Popen[bytes]] = {}
        for rank in set(range(world)) - set(never):
            own = {
                **os.environ,
                "RANK": str(rank),
                "WORLD_SIZE": str(world),
                "TEST_NODES": str(nodes),
                "TEST_OPEN_JOIN": str(join),
                "ODDRANK_TESTING": "1",
                **self.mark.environ,
                **injected(inject, at, faults),
                **(environ or {}),
                **(environ_of or {}).get(rank, {}),
            }
            command = [sys.executable, self.program, folder, str(deadline), str(stage)]
            with self.stderr.open("ab") as stderr:
                self.workers[rank] = subprocess.Popen(
                    [*(prefix_of or {}).get(rank, ()), *command],
                    env=own,
                    stderr=stderr,
                    stdout=stderr,
                )

    def processes(self) -> dict[int, str]:
        """Returns the living processes of this job: pid -> name; no zombies."""
        return {process.pid: process.name for process in self.mark.living()}

    def deadline_at(self) -> float:
        """Returns the deadline on time.time(), counted from the start of the last session."""
        began = [file.stat().st_mtime for file in self.folder.glob("start[0-9]*")]
        return max([self.started, *began]) + self.deadline

    def guard(self, rank: int) -> int:
        return int(self.wait_for(self.folder / f"guard{rank}").read_text())

    def judge(self) -> int:
        while time.time() < self.deadline_at():
            for pid, name in self.processes().items():
                if name == "oddrank-judge":
                    return pid
            time.sleep(0.01)
        raise AssertionError("no judge was started")

    def in_stage(self, stage: str, *through: int) -> None:
        """Waits until `stage` has begun and the ranks `through` have reached it."""
        self.wait_for(self.folder / f"go-{stage}")
        for rank in through:
            self.wait_for(self.folder / f"{stage}{rank}")

    def wait_for(self, file: Path) -> Path:
        while not file.exists():
            assert time.time() < self.deadline_at(), f"{file.name} never came"
            time.sleep(0.01)
        return file

    def signal(self, pid: int, number: int = signal.SIGKILL) -> None:
        os.kill(pid, number)

    def verdict(self) -> dict[str, Any]:
        """Returns what the judge wrote; "states" by rank."""
        verdict: dict[str, Any] = json.loads(
            self.wait_for(self.folder / "verdict.json").read_text()
        )
        verdict["states"] = {state["rank"]: state for state in verdict["states"]}
        return verdict

    def faults(self) -> dict[int, str]:
        """Returns rank -> its fault, as reported to the judge."""
        wrong = {}
        for rank, state in self.verdict()["states"].items():
            if state["contact"] != "ok":
                wrong[rank] = state["contact"]
            elif state["failed"]:
                wrong[rank] = "raised"
            elif state["state"] == "dead":
                wrong[rank] = f"signal {state['signal']}" if state["signal"] else "exited"
            elif state["state"] != "running":
                wrong[rank] = state["state"]
        return wrong

    def codes(self) -> dict[int, int]:
        """Returns the exit codes of all workers, which must have ended in time."""
        self.assert_gone()
        return {rank: worker.wait(1) for rank, worker in self.workers.items()}

    def assert_gone(self) -> None:
        """Asserts that all processes of the job end by deadline + 2 s."""
        # Reaps nobody meanwhile: the kernel reports an exit code once, and guards read it too.
        while self.processes() and time.time() < self.deadline_at() + GRACE + SLACK:
            time.sleep(0.02)
        assert not self.processes(), f"still here: {self.processes()}\n{self.words()}"

    def words(self) -> str:
        return self.stderr.read_text()

    def clear(self) -> None:
        self.mark.kill_all()
        for worker in self.workers.values():
            worker.wait(60)
