"""`oddrank bench pairs`: which rank sends or receives slowly, which link is slow."""

import click

from oddrank import launch, render
from oddrank.bench.case import parse_size
from oddrank.bench.pairs import stages
from oddrank.bench.pairs.judge import Judge
from oddrank.bench.pairs.report import of_pairs
from oddrank.cli import Seconds, fail_on_option, json_option, share
from oddrank.control import runner
from oddrank.control.walk import Outcome
from oddrank.errors import OddrankError
from oddrank.report import exit_code

_LARGEST_EFFECT = 0.95


def _size(ctx: click.Context, option: click.Parameter, value: str) -> int:
    try:
        return parse_size(value)
    except OddrankError as error:
        raise click.BadParameter(str(error)) from None


def _effect(ctx: click.Context, option: click.Parameter, value: str) -> float:
    effect = share(ctx, option, value)
    if not 0.01 <= effect <= _LARGEST_EFFECT:
        raise click.BadParameter(f"{value[:20]!r} is not a share from 1% to 95%, as in 20%")
    return effect


@click.command()
@click.option("--size", default="16M", show_default=True, metavar="BYTES", callback=_size,
              help="Bytes of one message; K, M, G: powers of 1024.")  # fmt: skip
@click.option("--effect", default="20%", show_default=True, metavar="PERCENT", callback=_effect,
              help="The smallest slowdown to look for.")  # fmt: skip
@click.option(
    "--deadline",
    type=Seconds(5, 86400),
    default=300,
    show_default=True,
    metavar="SECONDS",
    help="Time limit for the whole run.",
)
@json_option
@fail_on_option
def pairs(
    size: int, effect: float, deadline: float, json_path: str | None, fail_on: frozenset[str]
) -> None:
    """Find the slow sender, receiver or link, between nodes and between the ranks of each node.

    \b
    Examples:
      torchrun --nnodes 4 --nproc-per-node 8 ... -m oddrank bench pairs --json pairs.json
      srun -N 16 --ntasks-per-node 8 python -m oddrank bench pairs --effect 10%

    Up to 64 nodes each node measures with each other one, beyond that with 7 others. A suspect is
    measured again with known-good partners before it is named.

    Exit codes: 0 healthy; 1 a rank or link is named, or unknown; 2 could not run; 3 incomplete.
    """
    here = launch.current()
    if here.world == 1:
        raise OddrankError(
            "bench pairs needs two ranks: torchrun --nproc-per-node 2 -m oddrank bench pairs"
        )
    options, judge = stages.Options(size, effect, deadline), Judge(effect)

    def conclude(outcome: Outcome) -> int:
        report, tables = of_pairs(outcome, here, judge)
        render.deliver(report, json_path, tables=tables)
        return report.exit_code(fail_on)

    runner.run(
        stages.stages(options, judge),
        here,
        deadline=deadline,
        conclude=conclude,
        no_verdict=exit_code("unknown", fail_on),
    )
