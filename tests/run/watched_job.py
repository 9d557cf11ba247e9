"""Runs tests/run/training.py under `oddrank run`, and reads what the judge says of it."""

import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import forked
from launchers import LAUNCHERS, Launcher, Order
from netns import PATH, Host
from patience import until
from processes import Marked, Process, held_port, typed
from reports import valid

TRAINING = Path(__file__).with_name("training.py")
# Only ends a hang: under load a job takes many times as long as alone.
LONGEST = 240.0
_INTERFACE = "GLOO_SOCKET_IFNAME"


class Job:
    """A job that runs, or ran."""

    def __init__(self, folder: Path, mark: Marked, launchers: list[subprocess.Popen[bytes]]):
        self.folder, self.mark, self.launchers = folder, mark, launchers

    @property
    def report(self) -> dict[str, Any] | None:
        with suppress(FileNotFoundError):
            made: dict[str, Any] = valid((self.folder / "report.json").read_text())
            return made
        return None

    @property
    def output(self) -> str:
        return (self.folder / "out").read_text() + self.errors

    @property
    def errors(self) -> str:
        return (self.folder / "err").read_text()

    @property
    def said(self) -> list[str]:
        """Lines that begin with oddrank's name."""
        return [line for line in self.output.splitlines() if line.startswith("oddrank: ")]

    @property
    def codes(self) -> list[int | None]:
        return [one.poll() for one in self.launchers]

    def has(self, event: str) -> Callable[[], bool]:
        """Returns whether the report has this event in its history, as a function."""
        return lambda: event in [e["event"] for e in self.history]

    @property
    def history(self) -> list[dict[str, Any]]:
        report = self.report
        found: list[dict[str, Any]] = report["data"]["run"]["history"] if report else []
        return found

    def waits_for(self, event: str) -> dict[str, Any]:
        """Waits until the judge has noted an event; returns its report."""
        until(lambda: self.has(event)() or self.ended(), normal=LONGEST)
        report = self.report
        assert self.has(event)(), f"no {event}: {self.history}\n{self.output[-8000:]}"
        assert report is not None
        return report

    def evidence(self) -> dict[str, Any]:
        """Waits until the evidence of all hosts is saved; returns what the report says of it."""

        def found() -> Any:
            report = self.report
            return report and report["data"]["run"]["evidence"]

        until(lambda: found() or self.ended(), normal=LONGEST)
        assert found(), f"no evidence: {self.history}\n{self.output[-8000:]}"
        evidence: dict[str, Any] = found()
        return evidence

    def triaged_here(self) -> dict[str, Any]:
        """Returns what `oddrank triage` says without a path."""
        records = str(self.folder / "records")
        made = typed("triage", "--json", "-", cwd=self.folder, ODDRANK_DIR=records)
        report: dict[str, Any] = valid(made.stdout)
        return report

    def triaged(self) -> dict[str, Any]:
        """Returns what `oddrank triage` says of the evidence that was saved."""
        evidence = self.evidence()
        assert None not in [told["saved"] for told in evidence["hosts"].values()]
        folders = {path.parent for path in Path(evidence["folder"]).glob("*/manifest.json")}
        assert len(folders) == len(evidence["hosts"])
        made = typed("triage", "--json", "-", *folders, cwd=self.folder)
        report: dict[str, Any] = valid(made.stdout)
        return report

    def ended(self) -> bool:
        """Returns whether launchers, guards and judge are gone."""
        return None not in self.codes and not self.mark.living()

    def ends(self) -> list[int | None]:
        """Waits until all processes have ended; returns the launchers' exit codes."""
        until(self.ended, normal=LONGEST)
        return self.codes

    def pid(self, rank: int) -> int:
        path = self.folder / f"{rank}.pid"
        until(lambda: path.exists() and path.read_text(), normal=LONGEST)
        return int(path.read_text())

    def comes_to_its_fault(self) -> None:
        """Waits until the odd rank is at the step of its fault."""
        until((self.folder / "fault").exists, normal=LONGEST)

    def signal(self, rank: int, number: signal.Signals) -> None:
        os.kill(self.pid(rank), number)

    def processes(self, name: str) -> list[Process]:
        return [one for one in self.mark.living() if one.name == name]


def named(report: dict[str, Any]) -> tuple[list[int], str]:
    """Returns the ranks and the cause of the only finding."""
    (finding,) = report["findings"]
    assert report["verdict"] == "odd", report["summary"]
    return finding["who"]["ranks"], finding["cause"]


@contextmanager
def watched_job(
    fault: str = "none",
    rank: int = 2,
    *,
    steps: int = 100_000,
    ranks: int = 4,
    stall: float = 3,
    launcher: str | Launcher = "torchrun",
    program: tuple[str, ...] = ("-m", "oddrank", "run"),
    on_stall: str = "report",
    report_every: float | None = None,
    options: tuple[str, ...] | None = None,
    of_launcher: tuple[str, ...] = (),
    hosts: Sequence[Host] = (),
    environ: Mapping[str, str] | None = None,
    script: Path = TRAINING,
    fresh: bool = False,
) -> Iterator[Job]:
    """Starts the training (or another script) with a fault; ends all its processes afterwards.

    of_launcher: options of torchrun. hosts: those that share the ranks; empty: this one. A launcher
    that is a function reaches them itself. fresh: the ranks take seconds to import torch, so the
    judge knows all of them before they train.
    """
    mark = Marked()
    with tempfile.TemporaryDirectory(prefix="oddrank-run-") as name, held_port() as port:
        folder = Path(name)
        if options is None:
            every = ("--report-every", str(report_every)) if report_every is not None else ()
            json_and_stall = ("--json", "report.json", "--stall", str(stall))
            options = (*json_and_stall, "--on-stall", on_stall, *every)
        tool = [*program, *options, str(script), fault, str(rank), str(steps), name]
        master = (hosts[0].address if hosts else "127.0.0.1", port)
        variables = {
            **os.environ, **mark.environ, "PATH": PATH, "OMP_NUM_THREADS": "1",
            "MASTER_ADDR": master[0], "MASTER_PORT": str(port),
            "ODDRANK_DIR": str(folder / "records"), **(environ or {}),
        }  # fmt: skip
        order = Order(tool, ranks, max(1, len(hosts)), master, variables)
        plan = LAUNCHERS[launcher] if isinstance(launcher, str) else launcher
        hosts = hosts if isinstance(launcher, str) else ()
        with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
            started = [
                forked.popen(
                    [*line[:3], *of_launcher, *line[3:]], host=hosts[node] if hosts else None,
                    env=own | ({_INTERFACE: hosts[node].interface} if hosts else {}),
                    cwd=folder, stdout=out, stderr=err, fresh=fresh,
                )
                for node, line, own in plan(order)
            ]  # fmt: skip
        try:
            yield Job(folder, mark, started)
        finally:
            for one in started:
                one.kill()
            mark.kill_all()
            for one in started:
                one.wait()
