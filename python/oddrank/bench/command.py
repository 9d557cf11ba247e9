"""`oddrank bench`: how fast the collectives of these ranks are, and who is late."""

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import click

from oddrank import finding, launch, render
from oddrank.bench import live, report, sweep
from oddrank.bench.budget import BUDGET, DEADLINE, limits
from oddrank.bench.budget import visits as visits_within
from oddrank.bench.case import DTYPE_ALIASES, DTYPES, OPS
from oddrank.bench.collectives import COLLECTIVES
from oddrank.bench.pairs.command import pairs
from oddrank.bench.plan import AUTO, BACKENDS, PLACES, tasks
from oddrank.bench.row import Row
from oddrank.bench.sizes import parse_sizes
from oddrank.bench.visits import in_turn
from oddrank.cli import Seconds, fail_on_option, json_option, share
from oddrank.control import runner
from oddrank.control.stages import Rounds, Stage
from oddrank.control.walk import Outcome
from oddrank.errors import OddrankError

_ALL = "all"


def _sizes(ctx: click.Context, option: click.Parameter, value: str) -> list[int]:
    try:
        return parse_sizes(value)
    except OddrankError as error:
        raise click.BadParameter(str(error)) from None


def _names(
    known: Iterable[str],
    aliases: Mapping[str, str] | None = None,
    all_of: Iterable[str] | None = None,
) -> Callable[..., Any]:
    """The callback of a comma-separated list of known names; `all` are all of them, or all_of."""
    every = tuple(known)
    all_names = every if all_of is None else tuple(all_of)

    def convert(ctx: click.Context, option: click.Parameter, value: str) -> tuple[str, ...]:
        given = value.replace(" ", "").split(",")
        names = tuple(dict.fromkeys((aliases or {}).get(name, name) for name in given))
        for name in names:
            if name not in (*every, _ALL):
                raise click.BadParameter(f"{name[:40]!r} is none of {', '.join(every)}")
        return all_names if _ALL in names else names

    return convert


def _share_or_none(ctx: click.Context, option: click.Parameter, value: str | None) -> float | None:
    return None if value is None else share(ctx, option, value)


@click.group()
def command() -> None:
    """How fast are the collectives and the links of these ranks, and who holds them up?"""


_RUN_OPTIONS = (
    click.option("--collectives", default="all_reduce", show_default=True, metavar="LIST",
                 callback=_names(COLLECTIVES),
                 help=f"all, or some of {', '.join(COLLECTIVES)}."),
    click.option("--sizes", default="8:256M:x2", show_default=True, callback=_sizes,
                 metavar="MIN:MAX[:xN|:+N]",
                 help="Bytes, as nccl-tests counts them: a range with a factor or a step, one size,"
                 " or a list; K, M, G: powers of 1024. Rounded to what the ranks can share."),
    click.option("--dtypes", default="float32", show_default=True, metavar="LIST",
                 callback=_names(DTYPES, DTYPE_ALIASES),
                 help=f"all, or some of {', '.join(DTYPES)}."),
    click.option("--ops", default="sum", show_default=True, metavar="LIST", callback=_names(OPS),
                 help=f"Of what reduces: all, or some of {', '.join(OPS)}."),
    click.option("--place", "places", default=AUTO, show_default=True, metavar="LIST",
                 callback=_names(PLACES), help="in, out, or both; auto: as it is mostly used."),
    click.option("--backend", "backends", default=AUTO, show_default=True, metavar="LIST",
                 callback=_names((AUTO, *BACKENDS), all_of=BACKENDS),
                 help="nccl: our own communicator; c10d: torch.distributed (nccl or gloo);"
                 " all, or both: what the framework costs."),
    click.option("--target-cv", "target", default="1%", show_default=True, callback=share,
                 metavar="PERCENT", help="Iterate until the median is known this well (95 %),"
                 " as far as --budget and ten visits go."),
    click.option("--budget", type=Seconds(1, 86400), metavar="SECONDS",
                 show_default=f"{BUDGET:g}, or what --deadline leaves of it",
                 help="For all measurements: the cases, and who comes late."),
    click.option("--deadline", type=Seconds(5, 86400), metavar="SECONDS",
                 show_default=f"{DEADLINE:g}, or longer where --budget or the cases need it",
                 help="Everything ends by then; what was measured is printed."),
    click.option("--graph", type=click.IntRange(0, 64), default=0, show_default=True,
                 help="Back end nccl: operations in a CUDA graph; 0: no graph."),
    click.option("--register", is_flag=True,
                 help="Back end nccl: register the buffers, where the loaded NCCL can."),
    click.option("--fail-below", default=None, callback=_share_or_none, metavar="PERCENT",
                 help="A finding where a row reaches less of what is published for these GPUs;"
                 " unknown where nothing is that could judge a row."),
    click.option("--dry-run", is_flag=True, help="Only print the cases, their memory and time."),
)  # fmt: skip


def _run_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_RUN_OPTIONS):
        function = option(function)
    return function


@command.command()
@_run_options
@json_option
@fail_on_option
def run(
    *,
    collectives: tuple[str, ...],
    sizes: list[int],
    dtypes: tuple[str, ...],
    ops: tuple[str, ...],
    places: tuple[str, ...],
    backends: tuple[str, ...],
    target: float,
    budget: float | None,
    deadline: float | None,
    graph: int,
    register: bool,
    fail_below: float | None,
    dry_run: bool,
    json_path: str | None,
    fail_on: frozenset[str],
) -> int:
    """Sweep collectives over sizes, and look for a rank that comes late.

    algbw and busbw are as nccl-tests defines them: of each iteration the slowest rank, over the
    iterations the median. busbw of all_to_all_v takes even splits, as theirs are: of our uneven
    ones more crosses the bus, and it is 10 % below that on 8 ranks, 25 % on 2.

    torchrun --nproc-per-node 4 -m oddrank bench run --sizes 8:64M
    """
    here = launch.current()
    todo = tasks(
        backends=backends,
        collectives=collectives,
        dtypes=dtypes,
        ops=ops,
        sizes=sizes,
        places=places,
        world=here.world,
    )
    time = limits(budget, deadline, [task.case for task in todo], here.world)
    if dry_run:
        rows, sentence = report.plan_rows(todo, here, time)
        if here.rank == 0:
            render.table(report.PLAN_COLUMNS, rows, sys.stdout)
            render.line(sentence, sys.stdout)
        return 0
    stream = sys.stderr if json_path == "-" else sys.stdout
    visits = in_turn(todo, visits_within(time.budget, len(todo), here.world))
    by_stage = {visit.name: visit for visit in visits}
    table = live.Table(stream)
    measured: dict[str, Row] = {}

    def show(stage: Stage, rounds: Rounds) -> None:
        visit = by_stage.get(stage.name)
        if visit is not None:
            row = measured[visit.task.name] = sweep.row_of(visit, rounds)
            table.add(visit, row)

    def conclude(outcome: Outcome) -> int:
        table.end(measured.values())
        said = report.of_sweep(visits, here, outcome, measured, fail_below)
        render.progress("", stream)
        render.deliver(said, json_path)
        return said.exit_code(fail_on)

    options = sweep.Options(target, time.budget, time.deadline, graph, register)
    runner.run(
        sweep.stages(visits, options),
        here,
        deadline=time.deadline,
        conclude=conclude,
        on_stage=show,
        partial=True,
        no_verdict=finding.exit_code("unknown", fail_on),
    )


def _failing(ctx: click.Context, option: click.Parameter, value: str) -> frozenset[str]:
    from oddrank.bench.comparison import FAILING

    chosen = frozenset(word.strip().lower() for word in value.split(",") if word.strip())
    if chosen == {"none"}:
        return frozenset()
    if not chosen or not chosen <= set(FAILING):
        raise click.BadParameter(f"{value[:60]!r} is neither none nor some of {','.join(FAILING)}")
    return chosen


@command.command()
@click.argument("a", metavar="A.json")
@click.argument("b", metavar="B.json")
@click.option("--within", default="5%", show_default=True, callback=share, metavar="PERCENT",
              help="So much more or less time is the same.")  # fmt: skip
@click.option("--force", is_flag=True, help="Compare runs of different worlds all the same.")
@click.option(
    "--fail-on",
    metavar="LIST",
    default="slower,wrong",
    show_default=True,
    callback=_failing,
    help="Exit with 1 where a row is any of these: slower, faster, unsure, missing (A has measured"
    " it, B has not), wrong (values of B); or none.",
)
@json_option
def compare(  # noqa: PLR0917 (click passes them by name)
    a: str, b: str, within: float, force: bool, fail_on: frozenset[str], json_path: str | None
) -> int:
    """Compare two reports of `bench run`: is B as fast as A was?

    Row by row SAME, FASTER, SLOWER or UNSURE, from the interval (99 %, block bootstrap) of the
    ratio of the median times; WRONG where B's values are. The interval knows the noise within a
    run; two runs of one machine may differ by more: compare several before you blame a change.

    Exit codes: 0 nothing of --fail-on; 1 something of it; 2 not readable, or different worlds.
    """
    from oddrank.bench import compare as compare_
    from oddrank.bench import comparison, saved

    one, other = saved.read(a), saved.read(b)
    found = compare_.compare(one, other, within=within, force=force)
    if json_path != "-":
        render.line(f"A: {a}", sys.stdout)
        render.line(f"B: {b}", sys.stdout)
        render.table(comparison.COLUMNS, map(comparison.cells, found.rows), sys.stdout)
        for line in comparison.text(found):
            render.line(line, sys.stdout)
        render.line("", sys.stdout)
        render.line(f"bench compare: {found.verdict}", sys.stdout, _STYLES[found.verdict])
        render.line(comparison.sentence(found), sys.stdout)
        for line in comparison.advice(found):
            render.line(f"  next  {line}", sys.stdout)
    if json_path is not None:
        data = {"a": a, "b": b, **found.as_data()}
        finding.write_json(finding.envelope("bench compare", one.world, data), json_path)
    return found.exit_code(fail_on)


# Verdict -> how it looks on a terminal.
_STYLES = {"SAME": "bold green", "FASTER": "bold green", "SLOWER": "bold red",
           "UNSURE": "bold yellow", "WRONG": "bold red"}  # fmt: skip


@command.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("-o", "--output", required=True, metavar="OUT.png",
              help="The picture: .png, .svg or .pdf.")  # fmt: skip
@click.option("--only", multiple=True, metavar="WORD",
              help="Only rows of this collective, dtype, op or back end, or in, out (of place);"
              " several of them must all fit.")  # fmt: skip
def plot(files: tuple[str, ...], output: str, only: tuple[str, ...]) -> None:
    """Draw reports of `bench run` (bandwidth and latency against size) or of `bench pairs`.

    Several runs are laid over each other. Of pairs one FILE: the heat map, with the senders,
    receivers and links framed that were named. Needs matplotlib: pip install 'oddrank[plot]'.
    """
    from oddrank.bench import curves, heat_map, saved
    from oddrank.bench import plot as plot_

    plot_.check_target(output)
    plot_.matplotlib()
    runs = [saved.read(file) for file in files]
    if plot_.check_kinds(runs):
        figure = heat_map.draw_matrices(runs[0])
    else:
        figure = plot_.draw_curves(curves.collect(runs, only))
    plot_.write(figure, output)
    render.line(f"drawn: {output}", sys.stdout)


command.add_command(pairs)
