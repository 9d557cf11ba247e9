"""The end of a self-test: from the judge's outcome to report, JSON, further files and exit code."""

import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

from oddrank.bench.place import CPU, choose
from oddrank.control.stages import Rounds, Stage
from oddrank.control.walk import OVER, Outcome
from oddrank.finding import Report, fold, write_text
from oddrank.launch import Launch
from oddrank.render import deliver
from oddrank.selftest import baseline, exclude, judge, prometheus, ranks
from oddrank.selftest.facts.compare import not_readable
from oddrank.selftest.findings.speed import smallest_seen
from oddrank.selftest.metrics import SPEED

_NOT_BEGUN = "not begun"
_COLUMNS = ("stage", "ranks", "seconds", "result")


@dataclass(frozen=True)
class Wanted:
    """What shall be said besides the verdict: left_out: stages not asked for, and why."""

    left_out: Mapping[str, str] = field(default_factory=dict)
    json_path: str | None = None
    exclude_path: str | None = None
    prometheus_path: str | None = None
    fail_on: frozenset[str] = frozenset()


def report_of(outcome: Outcome, launch: Launch, left_out: Mapping[str, str]) -> Report:
    """The verdict of a self-test. left_out: stages that were not asked for, and why."""
    stages = [
        {"name": name, "seconds": round(seconds, 3), "ranks": outcome.came[name]}
        for name, seconds in outcome.seconds.items()
    ]
    facts, own = ranks.facts(outcome.rounds)
    return Report.of(
        "selftest",
        launch.as_world(),
        {
            "device": outcome.rounds.device or None,
            "stages": stages,
            "skipped": {
                **left_out,
                **outcome.skipped,
                **dict.fromkeys(outcome.not_begun, _NOT_BEGUN),
            },
            "environment": facts,
            "nodes": ranks.nodes(outcome),
            "ranks": ranks.ranks(outcome, own),
            "compared": judge.as_data(outcome.rounds),
        },
        outcome.findings,
        complete=outcome.complete,
        why=outcome.why or ("" if outcome.findings else _all_well(outcome, launch)),
        raised=outcome.rounds.raised(),
    )


def _all_well(outcome: Outcome, launch: Launch) -> str:
    """The summary where nothing was found: it must say what was tested, and how many."""
    environment = outcome.rounds.of("environment")
    tested = outcome.rounds.device or "nothing"
    if tested == CPU and any(facts["gpus"] for facts in environment.values()):
        tested = "CPU only: there are GPUs, but not one for every rank"
    size = "1 rank is" if launch.world == 1 else f"all {launch.world} ranks are"
    well = f"{size} healthy, tested on {tested}{launch.note}"
    unread = not_readable(environment)
    texts = [f"{name} (rank {fold(who)})" for name, who in unread.items()]
    look = outcome.rounds.kept.get(SPEED)
    well += smallest_seen(look) if look else ""
    if baseline.is_of_others(outcome.rounds):
        well += "; not held against the baseline, which has none of these hosts and local ranks"
    late = [name for name, reason in outcome.skipped.items() if reason == OVER]
    well += f"; no time was left for {', '.join(late)}" if late else ""
    return f"{well}; not readable: {', '.join(texts)}" if texts else well


def note_device(stage: Stage, rounds: Rounds) -> None:
    """As soon as it is known what is tested, ranks are named with it."""
    if stage.name == "environment":
        rounds.device = choose(rounds.of("environment").values())


def conclude(outcome: Outcome, launch: Launch, wanted: Wanted) -> int:
    """Says the verdict, writes the files that are wanted; returns every rank's exit code."""
    report = report_of(outcome, launch, wanted.left_out)
    with ExitStack() as then:  # also where the verdict, or one of them, can't be written
        if wanted.prometheus_path is not None:
            text = prometheus.text(report, outcome.rounds, time.time())
            then.callback(write_text, text, wanted.prometheus_path, prometheus.ADVICE)
        if wanted.exclude_path is not None:
            text = exclude.text(report, outcome.rounds)
            then.callback(write_text, text, wanted.exclude_path, exclude.ADVICE)
        rows = _rows(outcome, wanted.left_out)
        then.callback(partial(deliver, report, wanted.json_path, _COLUMNS, rows))
    return report.exit_code(wanted.fail_on)


def _rows(outcome: Outcome, left_out: Mapping[str, str]) -> list[tuple[str, ...]]:
    """One line a stage: to the one that ended the run, what is behind it, and what was left out."""
    rows: list[tuple[str, ...]] = []
    for name, seconds in outcome.seconds.items():
        conditions = {f.condition for f in outcome.findings if f.stage == name}
        came = f"{outcome.came[name]}/{outcome.rounds.world}"
        through = outcome.came[name] == outcome.rounds.world
        result = ", ".join(sorted(conditions)) or ("ok" if through else "-")
        rows.append((name, came, f"{seconds:.1f}", result))
    rows += [(name, "-", "-", _NOT_BEGUN) for name in outcome.not_begun]
    rows += [("all others", "-", "-", "not run: --only")] * ("--only" in left_out.values())
    skipped = {**{n: why for n, why in left_out.items() if why != "--only"}, **outcome.skipped}
    return rows + [(name, "-", "-", f"not run: {why}") for name, why in skipped.items()]
