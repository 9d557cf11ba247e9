"""One job over a network of hosts, in which `bench pairs` measures and judges many times.

A round is a run of the command without its start: measurement, recheck, findings. Before each round
the ranks wait until the driver, outside of the job, has set another fault in the network.

As a program, this file is every rank of that job; its argument is the number of rounds.
"""

import json
import os
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from job import Live, job
from launchers import Launcher, Order, Plan, env
from netns import Network, network
from oddrank import launch
from oddrank.bench.case import parse_size
from oddrank.bench.pairs import stages as pairs
from oddrank.bench.pairs.judge import Judge, settle
from oddrank.bench.pairs.stages import games_of_all, games_of_recheck
from oddrank.control import runner
from oddrank.control.stages import RunState, Skip, Stage, nodes_of
from oddrank.control.walk import Outcome
from oddrank.finding import Finding
from pair_faults import DEADLINE, LONGEST, RATE, SIZE, Case
from patience import PATIENCE

_SOCKET = "ODDRANK_TEST_ROUNDS"
_EFFECT = 0.2  # the command's default
_A_DAY = 86400.0


@dataclass(frozen=True)
class Driver:
    """The end of the connection outside the job: `launcher` starts the job."""

    launcher: Launcher
    _listening: socket.socket

    def drive(self, hurt: Callable[[int], None], judged: Callable[[int, Any], None]) -> None:
        """Calls hurt(number) before and judged(number, report) after each round."""
        connection, _ = self._listening.accept()
        connection.settimeout(2 * PATIENCE.seconds(LONGEST))
        with connection, connection.makefile("rw", encoding="utf-8") as lines:
            for line in lines:
                said = json.loads(line)
                if said["report"] is None:
                    hurt(said["round"])
                    print("go", file=lines, flush=True)
                else:
                    judged(said["round"], said["report"])


@contextmanager
def driver(run: int) -> Iterator[Driver]:
    with (
        TemporaryDirectory(prefix="oddrank-rounds-") as folder,
        socket.socket(socket.AF_UNIX) as listening,
    ):
        path = str(Path(folder, "socket"))
        listening.bind(path)
        listening.listen(1)
        listening.settimeout(PATIENCE.limit)
        yield Driver(partial(_start, run, path), listening)


def play(
    hosts: int,
    on_host: int,
    cases: Sequence[Case],
    judged: Callable[[int, Any], None],
) -> None:
    """Measures each case in a round of one job; calls judged(number, report) after each."""
    done: list[int] = []

    def act(net: Network, live: Live) -> None:
        def hurt(number: int) -> None:
            net.heal()
            cases[number].hurt(net)
            if later := cases[number].later:
                later(net, live)

        def told(number: int, report: Any) -> None:
            done.append(number)
            judged(number, report)

        line.drive(hurt, told)

    ranks = hosts * on_host
    with network(hosts, RATE) as net, driver(len(cases)) as line:
        verdict = job(
            ranks, hosts, hosts=net.hosts, launcher=line.launcher, deadline=DEADLINE,
            after=f"connect  {ranks}/{ranks}", act=lambda live: act(net, live),
        )  # fmt: skip
    assert len(done) == len(cases), f"the job has ended before its last round: {verdict}"


def _start(run: int, path: str, order: Order) -> Plan:
    environ = {**order.environ, _SOCKET: path}
    return env(replace(order, tool=[__file__, str(run)], environ=environ))


class _Line:
    """The end of the connection inside the job, at the rank that judges."""

    def __init__(self) -> None:
        self._lines: Any = None

    def say(self, number: int, report: Any = None) -> None:
        """Sends a round's report; without one asks for the round and waits for the reply."""
        if self._lines is None:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(PATIENCE.limit)
                connection.connect(os.environ[_SOCKET])
                self._lines = connection.makefile("rw", encoding="utf-8")
        print(json.dumps({"round": number, "report": report}), file=self._lines, flush=True)
        if report is None and self._lines.readline() != "go\n":
            raise RuntimeError("the driver has gone")


def _round(number: int, line: _Line) -> list[Stage]:
    """Returns the command's two stages with other names; the second one also sends the findings."""
    judge = Judge(_EFFECT, f"look {number}", f"again {number}")
    options = pairs.PairOptions(parse_size(SIZE), _EFFECT, DEADLINE)

    def plan(run: RunState) -> Any:
        line.say(number)
        return pairs.plan_of(run, options, games_of_all(nodes_of(run)))

    def plan_recheck(run: RunState) -> Any:
        if not judge.suspects(run):
            line.say(number, _report([]))
            return Skip("nobody looks slow")
        return pairs.plan_of(run, options, games_of_recheck(judge, run), again=True)

    def confirmed(run: RunState, met: object) -> list[Finding]:
        line.say(number, _report(settle(judge.confirmed(run))[0]))
        return []

    def seen(run: RunState, met: object) -> list[Finding]:
        judge.measurement(run)
        return []

    every = {"shown": False, "keeps_results": False}
    return [
        Stage(judge.first, LONGEST, pairs.measure, seen, plan, **every),
        Stage(judge.again, LONGEST, pairs.measure, confirmed, plan_recheck, **every),
    ]


def _report(found: list[Finding]) -> dict[str, Any]:
    """Returns the parts of a report that tests read."""
    return {"verdict": "odd" if found else "healthy", "findings": [asdict(one) for one in found]}


def main() -> None:
    options = pairs.PairOptions(parse_size(SIZE), _EFFECT, _A_DAY)
    line, start = _Line(), pairs.stages(options, Judge(_EFFECT))[:2]
    run = [stage for number in range(int(sys.argv[1])) for stage in _round(number, line)]

    def conclude(outcome: Outcome) -> int:
        if not outcome.complete:
            print(outcome.why, *(one.what for one in outcome.findings), sep="\n", file=sys.stderr)
        return 0 if outcome.complete else 1

    runner.run([*start, *run], launch.current(), deadline=_A_DAY, conclude=conclude)


if __name__ == "__main__":
    main()
