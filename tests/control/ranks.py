"""Starts the ranks of a job as plain processes, breaks them, and reads the judge's verdict."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from patience import PATIENCE, until
from processes import Marked, injected, stop


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
        self.stderr = folder / "stderr"
        self.workers: dict[int, subprocess.Popen[bytes]] = {}
        self._command = [sys.executable, self.program, folder, str(deadline), str(stage)]
        self._environ = {
            **os.environ,
            "WORLD_SIZE": str(world),
            "TEST_NODES": str(nodes),
            "TEST_OPEN_JOIN": str(join),
            **self.mark.environ,
            **injected(inject, at, faults),
            **(environ or {}),
        }
        for rank in set(range(world)) - set(never):
            self.start(rank, (prefix_of or {}).get(rank, ()), (environ_of or {}).get(rank, {}))

    def start(
        self, rank: int, prefix: Sequence[str] = (), environ: Mapping[str, str] | None = None
    ) -> None:
        own = {**self._environ, "RANK": str(rank), **(environ or {})}
        with self.stderr.open("ab") as out:
            command = [*prefix, *self._command]
            self.workers[rank] = subprocess.Popen(command, env=own, stderr=out, stdout=out)

    def processes(self) -> dict[int, str]:
        """Returns the living processes of this job: pid -> name; no zombies."""
        return {process.pid: process.name for process in self.mark.living()}

    def guard(self, rank: int) -> int:
        """Returns the guard's pid."""
        return int(self.wait_for(f"guard{rank}").split()[0])

    def guards_deadline(self, rank: int) -> float:
        """Returns when the guard's deadline is, on its clock, which time.monotonic() reads, too."""
        return float(self.wait_for(f"guard{rank}").split()[1])

    def judge(self) -> int:
        def pid() -> int:
            return next((p for p, name in self.processes().items() if name == "oddrank-judge"), 0)

        return until(pid, what="the judge")

    def in_stage(self, stage: str, *through: int) -> None:
        """Waits until `stage` has begun and the ranks `through` have reached it."""
        for name in (f"go-{stage}", *(f"{stage}{rank}" for rank in through)):
            self.wait_for(name)

    def wait_for(self, name: str) -> str:
        """Returns the text of a file of the folder, once it is there."""
        until((self.folder / name).exists, what=name)
        return (self.folder / name).read_text()

    def signal(self, pid: int, number: int = signal.SIGKILL) -> None:
        if number == signal.SIGSTOP:
            stop(pid)
        else:
            os.kill(pid, number)

    def verdict(self) -> dict[str, Any]:
        """Returns what the judge wrote; "states" by rank."""
        verdict: dict[str, Any] = json.loads(self.wait_for("verdict.json"))
        verdict["states"] = {state["rank"]: state for state in verdict["states"]}
        return verdict

    def ended(self) -> tuple[str, str]:
        """Returns the judge's last stage and why it ended."""
        verdict = self.verdict()
        return verdict["stage"], verdict["reason"]

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
        """Returns the exit codes of all workers, once all processes of the job have ended.

        Reaps nobody before: the kernel reports an exit code once, and guards read it too.
        """
        until(lambda: not self.processes(), what=f"the end of {self.processes()}")
        return {rank: worker.wait(PATIENCE.limit) for rank, worker in self.workers.items()}

    def clear(self) -> None:
        self.mark.kill_all()
        for worker in self.workers.values():
            worker.wait(PATIENCE.limit)
