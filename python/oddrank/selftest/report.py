"""Ends a self-test: makes report, JSON, further files and exit code from the judge's outcome."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from oddrank import exclude, exposition, page
from oddrank.control.findings import failed
from oddrank.control.stages import AnyStage, RunState, nodes_of
from oddrank.control.walk import OVER, Outcome
from oddrank.finding import fold, number_text, ranks_text
from oddrank.launch import Launch
from oddrank.machine.device import CPU, GPU, choose, name_of_gpu
from oddrank.page import Note, Parts, Table
from oddrank.render import deliver
from oddrank.report import Report, write_text
from oddrank.selftest import facts
from oddrank.selftest.facts import group, not_readable
from oddrank.selftest.speed_judge import SPEED, as_data
from oddrank.selftest.stages import device, speed
from oddrank.selftest.stages.speed import smallest_seen

_NOT_BEGUN = "not begun"
_COLUMNS = ("stage", "ranks", "seconds", "result")

_ENVIRONMENT = "environment"
_MOST_VALUES = 64  # a fact with more values than this is listed with each rank


def report_of(outcome: Outcome, launch: Launch, left_out: Mapping[str, str]) -> Report:
    """Makes the report of a self-test. left_out: stages that were not asked for, and why."""
    stages = [
        {"name": name, "seconds": round(seconds, 3), "ranks": outcome.came[name]}
        for name, seconds in outcome.seconds.items()
    ]
    environment, own = _made(outcome, "data.environment", ({}, {}), _data_of_facts, outcome.run)
    nodes = _made(outcome, "data.nodes", [], _data_of_nodes, outcome)
    figures = _made(outcome, "data.ranks", [], _data_of_ranks, outcome, own)
    look = speed.judged(outcome.run).look if SPEED in outcome.run.judged else None
    compared = _made(outcome, "data.compared", [], as_data, look)
    well = "the summary of what was tested"
    why = outcome.why or (
        "" if outcome.findings else _made(outcome, well, "", _all_well, outcome, launch)
    )
    skipped = {**left_out, **outcome.skipped, **dict.fromkeys(outcome.not_begun, _NOT_BEGUN)}
    data = {
        "device": outcome.run.device or None, "stages": stages, "skipped": skipped,
        "environment": environment, "nodes": nodes, "ranks": figures, "compared": compared,
    }  # fmt: skip
    return Report.of(
        "selftest", launch.as_world(), data, outcome.findings, complete=outcome.complete, why=why,
        raised=outcome.run.raised(),
    )  # fmt: skip


def _made(
    outcome: Outcome, part: str, otherwise: Any, make: Callable[..., Any], *given: Any
) -> Any:
    """Returns make(*given), or `otherwise` and a finding of the outcome that says why."""
    return outcome.attempt(partial(make, *given), partial(failed, part), otherwise)


def _all_well(outcome: Outcome, launch: Launch) -> str:
    """Returns the summary of a run without findings: what was tested, on how many ranks."""
    late = [name for name, reason in outcome.skipped.items() if reason == OVER]
    if late:
        return f"no time was left for stage {', '.join(late)}; no findings in the others"
    environment = facts.results(outcome.run)
    tested = outcome.run.device or "nothing"
    if tested == CPU and any(one["gpus"] for one in environment.values()):
        tested = "CPU only: there are GPUs, but not one for every rank"
    size = "1 rank is" if launch.world == 1 else f"all {launch.world} ranks are"
    well = f"{size} healthy, tested on {tested}{launch.note}"
    unread = not_readable(environment)
    texts = [f"{name} ({ranks_text(who)})" for name, who in unread.items()]
    well += device.covered(outcome.run)
    if SPEED in outcome.run.judged:
        well += smallest_seen(speed.judged(outcome.run).look)
    return f"{well}; not readable: {', '.join(texts)}" if texts else well


def note_device(stage: AnyStage, run: RunState) -> None:
    """Lets ranks be named with their device once it is known."""
    if stage.name == "environment":
        ranks = facts.results(run)
        run.device = choose(ranks.values())
        if run.device == GPU:
            run.devices = {
                rank: name
                for rank, own in ranks.items()
                if (name := name_of_gpu(own, run.states[rank].local_rank))
            }


def conclude(
    outcome: Outcome, launch: Launch, left_out: Mapping[str, str], files: Mapping[str, str | None],
    fail_on: frozenset[str],
) -> int:  # fmt: skip
    """Prints the verdict and writes the wanted files; returns every rank's exit code.

    files: option -> the path that it names. left_out: stages not asked for, and why.
    """
    report = report_of(outcome, launch, left_out)
    rows, run = rows_of(outcome, left_out), outcome.run
    texts = {
        "--prometheus": (lambda: _gauges(report, run.hosts, time.time()), exposition.ADVICE),
        "--write-exclude": (
            lambda: exclude.text(report, run.hosts, exclude.slurm_nodes()), exclude.ADVICE
        ),
        "--html": (lambda: _page(rows, report, run), page.ADVICE),
    }  # fmt: skip
    made = []
    for option, (text, advice) in texts.items():
        path = files.get(option)
        if path and (content := _made(outcome, option, None, text)) is not None:
            made.append((content, path, advice))
    if len(outcome.findings) > len(report.findings):  # a file could not be made
        report = report_of(outcome, launch, left_out)
    with ExitStack() as then:  # each is tried, also if the verdict or a file can't be written
        for file in made:
            then.callback(write_text, *file)
        then.callback(partial(deliver, report, files.get("--json"), _COLUMNS, rows))
    return report.exit_code(fail_on)


def _gauges(report: Report, hosts: Mapping[int, str], now: float) -> str:
    """Returns the text of --prometheus. now: seconds since 1970."""
    stages = [({"stage": one["name"]}, one["seconds"]) for one in report.data["stages"]]
    families: list[exposition.Family] = [
        ("time_seconds", "When the self-test ended, since 1970.", [({}, now)]),
        ("ranks", "Ranks of the job.", [({}, float(report.world["size"]))]),
        *exposition.of_report(report, lambda rank: hosts.get(rank, "")),
        ("stage_seconds", "How long a stage took.", stages),
    ]
    return exposition.text("oddrank_selftest_", families)


def _page(rows: Sequence[tuple[str, ...]], report: Report, run: RunState) -> str:
    """Returns the page of --html. rows: the stages, as the command's table shows them."""
    places: dict[str, list[int]] = {}
    for rank, state in run.states.items():
        place = "never joined" if state.contact == "never" else run.device_of(rank)
        places.setdefault(place, []).append(rank)
    tables = [Table("Stages", _COLUMNS, tuple(rows))]
    if compared := report.data["compared"]:
        figures = [
            (one["metric"].replace("_", " "), one["class"],
             f"{number_text(one['median'])} {one['unit']}",
             f"{number_text(one['worst'])} {one['unit']}", str(one["worst_rank"]))
            for one in compared
        ]  # fmt: skip
        columns = ("figure", "of", "median", "worst", "of rank")
        tables.append(Table("Figures", columns, tuple(figures)))
    parts = Parts(
        absent=tuple(places.get("never joined", ())),
        absence="never joined",
        hosts=run.hosts,
        notes=[Note(place, tuple(ranks)) for place, ranks in places.items()],
        tables=tables,
    )
    return page.text(report, parts)


def rows_of(outcome: Outcome, left_out: Mapping[str, str]) -> list[tuple[str, ...]]:
    """Returns one row per stage: those that ran, those not begun, and those left out."""
    rows: list[tuple[str, ...]] = []
    for name, seconds in outcome.seconds.items():
        conditions = {f.condition for f in outcome.findings if f.stage == name}
        came = f"{outcome.came[name]}/{outcome.run.world}"
        through = outcome.came[name] == outcome.run.world
        result = ", ".join(sorted(conditions)) or ("ok" if through else "-")
        rows.append((name, came, f"{seconds:.1f}", result))
    rows += [(name, "-", "-", _NOT_BEGUN) for name in outcome.not_begun]
    rows += [("all others", "-", "-", "not run: --only")] * ("--only" in left_out.values())
    skipped = {**{n: why for n, why in left_out.items() if why != "--only"}, **outcome.skipped}
    return rows + [(name, "-", "-", f"not run: {why}") for name, why in skipped.items()]


def _data_of_facts(run: RunState) -> tuple[dict[str, Any], dict[int, dict[str, Any]]]:
    """Returns the facts of all ranks, each once, and rank -> name -> value of the other facts.

    common: facts with the same value on all ranks. differing: each value with its ranks.
    """
    said: Mapping[int, Mapping[str, object]] = facts.results(run)
    common: dict[str, Any] = {}
    differing: dict[str, list[dict[str, Any]]] = {}
    own: dict[int, dict[str, Any]] = {rank: {} for rank in said}
    for name in dict.fromkeys(name for one in said.values() for name in one):
        groups = group({rank: one.get(name) for rank, one in said.items()})
        if len(groups) == 1:
            common[name] = groups[0][0]
        elif len(groups) <= _MOST_VALUES:
            differing[name] = [{"ranks": fold(who), "value": value} for value, who in groups]
        else:
            for value, who in groups:
                for rank in who:
                    own[rank][name] = value
    unread = {name: fold(who) for name, who in not_readable(said).items()}
    return {"common": common, "differing": differing, "not_readable": unread}, own


def _data_of_nodes(outcome: Outcome) -> list[dict[str, Any]]:
    """Returns the nodes by lowest rank. joined_s: seconds until the node's last rank had joined."""
    run, joined = outcome.run, outcome.joined
    return [
        {
            "host": run.states[node[0]].host or None,
            "ranks": fold(node),
            "joined_s": round(max(joined[rank] for rank in node), 3)
            if all(rank in joined for rank in node)
            else None,
        }
        for node in nodes_of(run)
    ]


def _data_of_ranks(outcome: Outcome, own: Mapping[int, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns one row per rank. metrics: the rank's results by stage. own: its facts by rank."""
    run = outcome.run
    number = {rank: n for n, node in enumerate(nodes_of(run)) for rank in node}
    found = []
    for rank, state in sorted(run.states.items()):
        came = state.contact != "never"
        metrics = {
            stage: results[rank]
            for stage, results in run.results.items()
            if stage != _ENVIRONMENT and rank in results and results[rank] is not None
        }
        if own.get(rank):
            metrics[_ENVIRONMENT] = own[rank]
        found.append(
            {
                "rank": rank,
                "host": state.host or None,
                "node": number[rank] if came else None,
                "local_rank": state.local_rank if came else None,
                "device": run.device_of(rank) if run.device == "GPU" else run.device or None,
                "metrics": metrics,
            }
        )
    return found
