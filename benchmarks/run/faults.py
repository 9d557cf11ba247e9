"""Scores `oddrank run`: does it name the right rank, and no other, in real jobs?

Small trainings over gloo, the faults of benchmarks/triage/hang_table.py and more: a process is
killed for memory, a node is stopped or cut off, ranks run under srun and mpirun, 32 ranks. Then
jobs without a fault of their own: they pause, or lose their launcher, guards or judge.

faults.py                                       each once: about 30 minutes
faults.py --only lock killed                    these
faults.py --repetitions 10 --healthy 100        the proof: some hours

right, wrong, unknown: as the scorer of hangs counts. failed: the job itself did not do as it
should. kind: right ones with the right cause. saved: runs on which `oddrank triage` agrees, from
the saved evidence; differs: runs on which it does not. told_s: median seconds until the report.
--json FILE keeps each run as soon as it has ended. Runs that FILE has are not made again, so that
an interrupted benchmark goes on; --again makes them anew. Two of these may write to one FILE.
"""

import argparse
import signal
import sys
from pathlib import Path

import fault_runs

import harness


def main() -> int:
    names = [*fault_runs.with_fault(), *fault_runs.without_fault()]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", metavar="FILE", type=Path, help="keep the runs here")
    parser.add_argument("--repetitions", type=int, default=1)
    parser.add_argument("--healthy", type=int, metavar="N", help="runs without a fault")
    parser.add_argument("--only", nargs="+", metavar="FAULT", default=names, help="only these")
    parser.add_argument("--again", action="store_true", help="make runs anew that FILE has")
    arguments = parser.parse_args()
    if unknown := set(arguments.only) - set(names):
        parser.error(f"{', '.join(sorted(unknown))}: not in {', '.join(names)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the job in hand is ended
    done = fault_runs.kept(arguments.json) if arguments.json and not arguments.again else []
    known = {(run["fault"], run["number"]) for run in done}
    for name, number in fault_runs.plan(arguments.only, arguments.repetitions, arguments.healthy):
        if (name, number) not in known:
            done.append(run := fault_runs.make(name, number))
            if arguments.json:
                fault_runs.keep(arguments.json, run)
    harness.report("run/faults", fault_runs.rows(done), None)
    return int(any(fault_runs.is_bad(run) for run in done))


if __name__ == "__main__":
    sys.exit(main())
