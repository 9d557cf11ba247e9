"""`oddrank bench`: run and pairs measure; compare and plot read the reports of both."""

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import click

from oddrank import cli, launch, render
from oddrank.bench import comparison, page_parts, report, split, sweep
from oddrank.bench.case import COLLECTIVES, DTYPE_ALIASES, DTYPES, OPS, parse_size, parse_sizes
from oddrank.bench.data import Row
from oddrank.bench.pairs import stages as pairs_stages
from oddrank.bench.pairs.judge import Judge
from oddrank.bench.pairs.report import of_pairs
from oddrank.bench.plan import BUDGET, DEADLINE, cases_of, in_turn, limits, passes_within
from oddrank.bench.row import Table
from oddrank.bench.split import Split
from oddrank.control import runner
from oddrank.control.stages import AnyStage, RunState
from oddrank.control.walk import Outcome
from oddrank.errors import OddrankError
from oddrank.report import exit_code

_LARGEST_EFFECT = 0.95


def _parsed(parse: Callable[[str], Any]) -> Callable[..., Any]:
    """Returns the callback of an option that `parse` reads; an option not given is None.
    An OddrankError of `parse` is a usage error."""

    def convert(ctx: click.Context, option: click.Parameter, value: str | None) -> Any:
        try:
            return None if value is None else parse(value)
        except OddrankError as error:
            raise click.BadParameter(str(error)) from None

    return convert


def _names(known: Iterable[str], aliases: Mapping[str, str] | None = None) -> Callable[..., Any]:
    """Returns the callback of an option for a comma-separated list of known names, or `all`."""
    every = tuple(known)

    def convert(ctx: click.Context, option: click.Parameter, value: str) -> tuple[str, ...]:
        given = value.replace(" ", "").split(",")
        names = tuple(dict.fromkeys((aliases or {}).get(name, name) for name in given))
        for name in names:
            if name != "all" and name not in every:
                raise click.BadParameter(
                    f"{name[:40]!r} is none of {', '.join(every)}{cli.near(name, every)}"
                )
        return every if "all" in names else names

    return convert


def _effect(ctx: click.Context, option: click.Parameter, value: str) -> float:
    effect = cli.share(ctx, option, value)
    if not 0.01 <= effect <= _LARGEST_EFFECT:
        raise click.BadParameter(f"{value[:20]!r} is not a share from 1% to 95%, as in 20%")
    return effect


@click.group(cls=cli.CommandGroup)
def command() -> None:
    """Measure the collectives and links of these ranks, and name the rank that is slow or late."""


@command.command()
@click.option("--collectives", default="all_reduce", show_default=True, metavar="LIST",
              callback=_names(COLLECTIVES), shell_complete=cli.some_of("all", *COLLECTIVES),
              help=f"Collectives: all, or some of {', '.join(COLLECTIVES)}.")  # fmt: skip
@click.option("--sizes", default="8:256M:x2", show_default=True,
              callback=_parsed(parse_sizes), metavar="MIN:MAX[:xN|:+N]",
              help="Bytes, as nccl-tests counts them: a range with a factor or a step, one size, or"
              " a list; K, M, G: powers of 1024. Rounded so that ranks can share it.")  # fmt: skip
@click.option("--dtypes", default="float32", show_default=True, metavar="LIST",
              callback=_names(DTYPES, DTYPE_ALIASES), shell_complete=cli.some_of("all", *DTYPES),
              help=f"Data types: all, or some of {', '.join(DTYPES)}.")  # fmt: skip
@click.option("--ops", default="sum", show_default=True, metavar="LIST", callback=_names(OPS),
              help=f"For collectives that reduce: all, or some of {', '.join(OPS)}.")  # fmt: skip
@click.option("--backend", default=sweep.AUTO, show_default=True,
              type=click.Choice((sweep.AUTO, *sweep.BACKENDS)),
              help="nccl: NCCL with oddrank's own communicator; c10d: torch.distributed over nccl"
              " or gloo; auto: nccl if every rank can use it, else c10d.")  # fmt: skip
@click.option("--precision", "target", default="1%", show_default=True, callback=cli.share,
              metavar="PERCENT", help="End a case when the 95 % interval of its median is"
              " this narrow, after ten passes, or when --budget is used up.")  # fmt: skip
@click.option("--budget", type=cli.Seconds(1, 86400), metavar="SECONDS",
              show_default=f"{BUDGET:g}, or what --deadline leaves of it",
              help="Time for all measurements: cases, and the check for late ranks.")  # fmt: skip
@click.option("--deadline", type=cli.Seconds(5, 86400), metavar="SECONDS",
              show_default=f"{DEADLINE:g}, or longer where --budget or the cases need it",
              help="Time limit for the whole run. Then prints the results so far.")  # fmt: skip
@click.option("--register", is_flag=False, flag_value="buffer", default="",
              type=click.Choice(("", "buffer", "window")), metavar="[buffer|window]",
              help="Register the buffers with NCCL (back end nccl); window: as symmetric windows"
              " (NCCL 2.27 and newer), which its low-latency kernels need.")  # fmt: skip
@click.option("--split", "divided", metavar="HOW", default=None,
              callback=_parsed(split.parse),
              help="Groups of ranks that measure at once: node (the ranks of each node), rail"
              " (the first rank of all nodes, the second, ...), or NCCL_TESTS_SPLIT's AND, OR,"
              " MOD, DIV with a number, as in 'DIV 8'. The report names a slow group.")  # fmt: skip
@cli.html_option
@cli.json_option
@cli.fail_on_option
def run(
    *, collectives: tuple[str, ...], sizes: list[int], dtypes: tuple[str, ...],
    ops: tuple[str, ...], backend: str, target: float, budget: float | None,
    deadline: float | None, register: str, divided: Split | None, html_path: str | None,
    json_path: str | None, fail_on: frozenset[str],
) -> None:  # fmt: skip
    """Measure collectives over sizes, check every value, and look for a rank that arrives late.

    \b
    Examples:
      torchrun --nproc-per-node 4 -m oddrank bench run --sizes 8:64M
      srun -N 4 --ntasks-per-node 8 python -m oddrank bench run --json run.json

    A row shows the mean time of an iteration on the slowest rank. The file of --json also has
    median, p95, p99 and min of single iterations. algbw and busbw are those of nccl-tests. busbw of
    all_to_all_v counts even splits, as nccl-tests does. Our splits are uneven and move more: busbw
    is 10 % below the real traffic on 8 ranks, 25 % on 2.

    Exit codes: 0 healthy; 1 odd or unknown; 2 could not run; 3 incomplete.
    """
    cli.refuse_shared({"--json": json_path, "--html": html_path})
    here = launch.current()
    if register and backend == "c10d":
        raise click.UsageError("--register needs the back end nccl: add --backend nccl")
    with cli.alike_on_all_ranks():
        todo = cases_of(
            collectives=collectives, dtypes=dtypes, ops=ops, sizes=sizes,
            world=divided.size(here) if divided else here.world,
        )  # fmt: skip
        time = limits(budget, deadline, todo, here.world)
    stream = sys.stderr if json_path == "-" else sys.stdout
    passes = in_turn(todo, passes_within(time.budget, len(todo), here.world))
    by_stage = {one_pass.name: one_pass for one_pass in passes}
    table, measured = Table(stream), dict[int, Row]()

    def show(stage: AnyStage, run: RunState) -> None:
        one_pass = by_stage.get(stage.name)
        if one_pass is not None:
            row = measured[one_pass.index] = sweep.row_of(one_pass, run)
            table.add(one_pass, row)

    def conclude(outcome: Outcome) -> int:
        table.end(measured.values())
        found_report = report.of_sweep(passes, here, outcome, measured)
        render.progress("", stream)
        render.deliver(found_report, json_path)
        parts = partial(
            page_parts.of_sweep, outcome.run, [*measured.values()], found_report.data["devices"]
        )
        cli.write_page(found_report, parts, html_path)
        return found_report.exit_code(fail_on)

    options = sweep.SweepOptions(target, *time, backend, register, divided)
    runner.run(
        sweep.stages(passes, options), here, deadline=time.deadline, conclude=conclude,
        on_stage=show, partial=True, no_verdict=exit_code("unknown", fail_on),
    )  # fmt: skip


@command.command()
@click.option("--size", default=None, show_default="16M, on GPUs 256M", metavar="BYTES",
              callback=_parsed(parse_size),
              help="Bytes of one message; K, M, G: powers of 1024.")  # fmt: skip
@click.option("--effect", default="20%", show_default=True, metavar="PERCENT", callback=_effect,
              help="Smallest slowdown to look for.")  # fmt: skip
@click.option("--deadline", type=cli.Seconds(5, 86400), default=300, show_default=True,
              metavar="SECONDS", help="Time limit for the whole run.")  # fmt: skip
@cli.html_option
@cli.json_option
@cli.fail_on_option
def pairs(
    *, size: int | None, effect: float, deadline: float, html_path: str | None,
    json_path: str | None, fail_on: frozenset[str],
) -> None:  # fmt: skip
    """Find the slow sender, receiver or link, between nodes and between the ranks of each node.

    \b
    Examples:
      torchrun --nnodes 4 --nproc-per-node 8 ... -m oddrank bench pairs --json pairs.json
      srun -N 16 --ntasks-per-node 8 python -m oddrank bench pairs --effect 10%

    Each node measures with every other node; with 7 others if there are more than 64. A suspect is
    measured again with known-good partners before it is named.

    Exit codes: 0 healthy; 1 odd or unknown; 2 could not run; 3 incomplete.
    """
    cli.refuse_shared({"--json": json_path, "--html": html_path})
    here = launch.current()
    if here.world == 1:
        raise OddrankError(
            "bench pairs needs two ranks: torchrun --nproc-per-node 2 -m oddrank bench pairs"
        )
    options, judge = pairs_stages.PairOptions(size, effect, deadline), Judge(effect)

    def conclude(outcome: Outcome) -> int:
        report, tables = of_pairs(outcome, here, judge)
        render.deliver(report, json_path, tables=tables)
        cli.write_page(report, partial(page_parts.of_tables, outcome.run, tables), html_path)
        return report.exit_code(fail_on)

    runner.run(
        pairs_stages.stages(options, judge), here, deadline=deadline, conclude=conclude,
        no_verdict=exit_code("unknown", fail_on),
    )  # fmt: skip


@command.command()
@click.argument("a", metavar="A.json")
@click.argument("b", metavar="B.json")
@click.option("--within", default="5%", show_default=True, callback=cli.share, metavar="PERCENT",
              help="Treat differences up to this as equal.")  # fmt: skip
@click.option("--force", is_flag=True, help="Compare runs even if their worlds differ.")
@cli.json_option
@cli.fail_on_option
def compare(  # noqa: PLR0917 (click passes them by name)
    a: str, b: str, within: float, force: bool, fail_on: frozenset[str], json_path: str | None
) -> int:
    """Compare two reports of `bench run`: is B as fast as A?

    \b
    Examples:
      oddrank bench compare monday.json today.json
      oddrank bench compare A.json B.json --within 10% --fail-on odd,incomplete

    A row is SAME, FASTER, SLOWER or UNSURE, by the 99 % interval (block bootstrap) of the ratio of
    its median times. It is WRONG if B has wrong values. The interval covers the noise within a run.
    Two runs of one machine may differ by more: compare several before you blame a change.

    Slower and wrong rows are odd, unsure ones unknown, and rows that B lacks incomplete.

    Exit codes: 0 healthy; 1 odd or unknown; 2 not readable, or different worlds; 3 incomplete.
    """
    one, other = comparison.read(a), comparison.read(b)
    if os.path.samefile(a, b):
        raise OddrankError(f"{a} and {b} are the same file: give the reports of two runs")
    found = comparison.compare_runs(one, other, within=within, force=force)
    made = comparison.report(found, one, other)
    stream = sys.stderr if json_path == "-" else sys.stdout
    for line in (f"A: {a}", f"B: {b}", *comparison.text(found)):
        render.progress(line, stream)
    render.progress("", stream)
    rows = map(comparison.cells, found.rows)
    render.deliver(made, json_path, comparison.COLUMNS, rows)
    return made.exit_code(fail_on)


@command.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("-o", "--output", required=True, metavar="OUT.png",
              help="File for the picture: .png, .svg or .pdf.")  # fmt: skip
@click.option("--only", multiple=True, metavar="WORD",
              help="Draw only rows with this word: a collective, dtype, op or back end, in or out"
              " (of place). Given twice, draws rows that have both words.")  # fmt: skip
def plot(files: tuple[str, ...], output: str, only: tuple[str, ...]) -> None:
    """Draw reports of `bench run` into one picture: bandwidth and latency against size.

    \b
    Example:
      oddrank bench plot monday.json today.json -o curves.png

    Needs matplotlib: pip install matplotlib.

    Exit codes: 0 drawn; 2 not readable, or nothing to draw.
    """
    from oddrank import pictures
    from oddrank.bench.plot import draw_curves, picture_of_files

    pictures.check_target(output, "-o")
    pictures.matplotlib()  # fails early without it
    runs = [comparison.read(file) for file in files]
    pictures.write(draw_curves(picture_of_files(runs, only)), output, "-o")
    render.line(f"drawn: {output}", sys.stdout)
