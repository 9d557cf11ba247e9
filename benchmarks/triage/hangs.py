"""A benchmark of hangs: makes real jobs with one fault each, and scores the tools' verdicts.

hangs.py make DIR                 22 faults, a job each, and 100 healthy jobs
hangs.py make DIR --only stopped lock
hangs.py score DIR --json FILE    asks `oddrank triage`, and torch's own analyzer
hangs.py table FILE               the result as Markdown

README.md beside this file describes DIR.
"""

import argparse
import json
import os
import resource
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import hang_job
import hang_score
from hang_table import BY_NAME, plan

import harness


def make(arguments: argparse.Namespace) -> int:
    """Makes the cases that DIR lacks, so that a broken-off run can go on."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the job in hand is ended
    folder, began, failed = Path(arguments.folder), time.monotonic(), 0
    cases = plan(arguments.only, arguments.each, arguments.healthy, arguments.seed)
    for number, case in enumerate(cases, 1):
        target = folder / case.name
        text = f"{number}/{len(cases)} {case.name}"
        if (target / "run.json").exists():
            print(f"{text}: is there", flush=True)
        elif BY_NAME[case.fault].needs == "fuse" and not _has_fuse():
            print(f"{text}: skipped, needs root and /dev/fuse", flush=True)
        else:
            try:
                facts = hang_job.run_case(case, target)
                print(f"{text}: {facts['seconds']} s, {' '.join(facts['forms'])}", flush=True)
            except Exception as error:  # the others are still worth making
                failed += 1
                print(f"{text}: FAILED: {type(error).__name__}: {error}", flush=True)
    print(f"{time.monotonic() - began:.0f} s, {failed} failed", flush=True)
    return 1 if failed else 0


def score(arguments: argparse.Namespace) -> int:
    folder = Path(arguments.folder)
    answers = hang_score.ask(folder, arguments.command.split(), arguments.workers)
    rows = hang_score.count(answers)
    runs = [json.loads(file.read_text(encoding="utf-8")) for file in folder.glob("*/run.json")]
    harness.report(
        "triage/hangs", rows, arguments.json, jobs=len(runs),
        seconds_to_make=round(sum(run["seconds"] for run in runs)),
        by_fault=hang_score.by_fault(answers),
        wrong=[hang_score.describe(one) for one in answers if one.outcome == "wrong"],
        unknown=[hang_score.describe(one) for one in answers if one.outcome == "unknown"],
        failed=[hang_score.describe(one) for one in answers if one.outcome == "failed"],
    )  # fmt: skip
    return 0


def table(arguments: argparse.Namespace) -> int:
    print(hang_score.markdown(json.loads(Path(arguments.file).read_text(encoding="utf-8"))["rows"]))
    return 0


def _has_fuse() -> bool:
    return os.geteuid() == 0 and os.access("/dev/fuse", os.R_OK | os.W_OK)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(required=True)
    verb = verbs.add_parser("make", help="make the jobs and save their evidence")
    verb.add_argument("folder", metavar="DIR")
    verb.add_argument("--only", nargs="+", default=(), metavar="FAULT", help="only these faults")
    verb.add_argument("--each", type=int, default=1, help="jobs of each fault")
    verb.add_argument("--healthy", type=int, default=100, help="healthy jobs")
    verb.add_argument("--seed", type=int, default=17)
    verb.set_defaults(act=make)
    verb = verbs.add_parser("score", help="ask for verdicts, and compare them with the truth")
    verb.add_argument("folder", metavar="DIR")
    verb.add_argument(
        "--command", default=hang_score.TRIAGE, help="called with the paths of the evidence"
    )
    verb.add_argument("--workers", type=int, default=2)
    verb.add_argument("--json", metavar="FILE", help="write the figures here, - for stdout")
    verb.set_defaults(act=score)
    verb = verbs.add_parser("table", help="print a result as Markdown")
    verb.add_argument("file", metavar="FILE")
    verb.set_defaults(act=table)
    arguments = parser.parse_args()
    unknown = sorted(set(getattr(arguments, "only", ())) - set(BY_NAME))
    if unknown:
        parser.error(f"{', '.join(unknown)}: not in {', '.join(BY_NAME)}")
    code: int = arguments.act(arguments)
    return code


if __name__ == "__main__":
    sys.exit(main())
