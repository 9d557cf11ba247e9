"""The end of a self-test: from the judge's outcome to report, JSON and exit code."""

from collections.abc import Mapping

from oddrank.bench.place import CPU
from oddrank.control.stages import Rounds, Stage
from oddrank.control.walk import Outcome
from oddrank.finding import Report
from oddrank.launch import Launch
from oddrank.render import deliver

_COLUMNS = ("stage", "ranks", "seconds", "result")


def report_of(outcome: Outcome, launch: Launch, left_out: Mapping[str, str]) -> Report:
    """The verdict of a self-test. left_out: stages that were not asked for, and why."""
    stages = [
        {"name": name, "seconds": round(seconds, 3), "ranks": outcome.came[name]}
        for name, seconds in outcome.seconds.items()
    ]
    environment = {str(rank): facts for rank, facts in outcome.rounds.of("environment").items()}
    return Report.of(
        "selftest",
        launch.as_world(),
        {
            "device": outcome.rounds.device or None,
            "stages": stages,
            "skipped": {**left_out, **outcome.skipped},
            "environment": environment,
        },
        outcome.findings,
        complete=outcome.complete,
        why=outcome.why or ("" if outcome.findings else _all_well(outcome, launch)),
    )


def _all_well(outcome: Outcome, launch: Launch) -> str:
    """The summary where nothing was found: it must say what was tested, and how many."""
    tested = outcome.rounds.device or "nothing"
    if tested == CPU and any(r["gpus"] for r in outcome.rounds.of("environment").values()):
        tested = "CPU only: there are GPUs, but not one for every rank"
    if launch.launcher == "alone":
        return f"1 rank is healthy, tested on {tested} (no launcher found: this process alone)"
    ranks = "1 rank is" if launch.world == 1 else f"all {launch.world} ranks are"
    return f"{ranks} healthy, tested on {tested}"


def note_device(stage: Stage, rounds: Rounds) -> None:
    """From the stage that has tested it on, ranks are named with their GPU."""
    if stage.name == "device":
        rounds.device = next(iter(rounds.of("device").values()))["device"]


def conclude(
    outcome: Outcome,
    launch: Launch,
    left_out: Mapping[str, str],
    json_path: str | None,
    fail_on: frozenset[str],
) -> int:
    """Says the verdict; returns every rank's exit code."""
    report = report_of(outcome, launch, left_out)
    deliver(report, json_path, _COLUMNS, _rows(outcome, left_out))
    return report.exit_code(fail_on)


def _rows(outcome: Outcome, left_out: Mapping[str, str]) -> list[tuple[str, ...]]:
    """One line a stage, to the one that ended the run; then what there was no need to run."""
    rows: list[tuple[str, ...]] = []
    for name, seconds in outcome.seconds.items():
        conditions = {f.condition for f in outcome.findings if f.stage == name}
        came = f"{outcome.came[name]}/{outcome.rounds.world}"
        through = outcome.came[name] == outcome.rounds.world
        result = ", ".join(sorted(conditions)) or ("ok" if through else "-")
        rows.append((name, came, f"{seconds:.1f}", result))
    skipped = {**left_out, **outcome.skipped}
    return rows + [(name, "-", "-", f"not run: {why}") for name, why in skipped.items()]
