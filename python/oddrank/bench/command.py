"""`oddrank bench`: how fast the collectives of these ranks are."""

import click

from oddrank import launch, render
from oddrank.bench import findings, row, sweep
from oddrank.bench.case import Case, parse_sizes
from oddrank.cli import Seconds, fail_on_option, json_option
from oddrank.control import runner
from oddrank.control.walk import Outcome
from oddrank.errors import OddrankError
from oddrank.finding import Report


def _sizes(ctx: click.Context, option: click.Parameter, value: str) -> list[int]:
    try:
        return parse_sizes(value)
    except OddrankError as error:
        raise click.BadParameter(str(error)) from None


@click.group()
def command() -> None:
    """Time collectives on all ranks, every size verified by value."""


@command.command()
@click.option(
    "--sizes",
    default="8:256M:x2",
    show_default=True,
    metavar="MIN:MAX[:xN]",
    callback=_sizes,
    help="Bytes of one rank's buffer, from MIN in factors of N, and MAX; K, M, G: powers of 1024.",
)
@click.option("--iters", type=click.IntRange(1, 100_000), default=20, show_default=True,
              help="Timed iterations a size, at most; fewer where they take long.")  # fmt: skip
@click.option(
    "--deadline",
    type=Seconds(5, 86400),
    default=300,
    show_default=True,
    metavar="SECONDS",
    help="Everything ends by then; what was measured is printed.",
)
@json_option
@fail_on_option
def run(
    sizes: list[int],
    iters: int,
    deadline: float,
    json_path: str | None,
    fail_on: frozenset[str],
) -> None:
    """Sweep all_reduce of torch.distributed over sizes, nccl with GPUs, else gloo.

    algbw and busbw are as nccl-tests defines them.

    torchrun --nproc-per-node 4 -m oddrank bench run --sizes 8:64M
    """
    here = launch.current()
    cases = [Case("all_reduce", "float32", size) for size in sizes]
    by_stage = {str(case): case for case in cases}

    def conclude(outcome: Outcome) -> int:
        rows = [
            sweep.row_of(name, case, outcome.rounds)
            for name, case in by_stage.items()
            if outcome.rounds.of(name)
        ]
        if outcome.complete and all(r.median_us is None for r in rows):
            outcome.findings.append(findings.nothing_measured(rows[0].reason or "no reason known"))
        report = Report.of(
            "bench",
            here.as_world(),
            {"rows": [r.as_data() for r in rows]},
            outcome.findings,
            complete=outcome.complete,
            why=outcome.why,
        )
        render.deliver(report, json_path, row.COLUMNS, [r.cells() for r in rows])
        return report.exit_code(fail_on)

    stages = sweep.stages(cases, iters, deadline)
    runner.run(stages, here, deadline=deadline, conclude=conclude)
