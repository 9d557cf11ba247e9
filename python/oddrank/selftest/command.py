"""`oddrank selftest`: is this allocation healthy, and which rank is not."""

from functools import partial

import click

from oddrank import launch
from oddrank.cli import Seconds, fail_on_option, json_option
from oddrank.control import join, runner
from oddrank.selftest.choice import Level, Options, choose, names
from oddrank.selftest.runner import conclude, note_device
from oddrank.selftest.stages import TABLE

# Level -> seconds for everything.
_DEADLINES: dict[Level, float] = {"quick": 120, "normal": 300, "full": 1800}


def _stages(ctx: click.Context, option: click.Parameter, value: tuple[str, ...]) -> frozenset[str]:
    chosen = frozenset(name.strip() for text in value for name in text.split(",") if name.strip())
    unknown = sorted(chosen - set(names(TABLE)))
    if unknown:
        raise click.BadParameter(
            f"no stage {unknown[0][:40]!r} to choose: there are {', '.join(names(TABLE))}"
        )
    return chosen


@click.command()
@click.option("--quick", "level", flag_value="quick",
              help="Only what is done within a minute of the last rank's coming.")  # fmt: skip
@click.option("--full", "level", flag_value="full", help="More memory, more repeats, more sizes.")
@click.option("--only", metavar="STAGE,...", multiple=True, callback=_stages,
              help=f"These stages and no others, of {', '.join(names(TABLE))}.")  # fmt: skip
@click.option("--skip", metavar="STAGE,...", multiple=True, callback=_stages,
              help="All but these stages.")  # fmt: skip
@click.option(
    "--deadline",
    type=Seconds(5, 86400),
    metavar="SECONDS",
    help="Everything ends by then; default: "
    + ", ".join(f"{level} {seconds:g}" for level, seconds in _DEADLINES.items())
    + ". A stage also has its own: "
    + ", ".join(
        f"{stage.name} {stage.seconds:g}" for stage in choose(TABLE, Options("full")).stages
    )
    + f"; join {join.SHARE:.0%} of the whole.",
)
@json_option
@fail_on_option
def command(
    *,
    level: Level | None,
    only: frozenset[str],
    skip: frozenset[str],
    deadline: float | None,
    json_path: str | None,
    fail_on: frozenset[str],
) -> None:
    """Test the ranks of this job, on GPUs if every rank has one, else on the CPU.

    torchrun --nproc-per-node 4 -m oddrank selftest

    Under torchrun a node that never comes keeps all others from starting, this test too: start
    the ranks with srun, mpirun or RANK and WORLD_SIZE to be told which ones are missing.
    """
    here = launch.current()
    options = Options(level or "normal", only, skip)
    choice = choose(TABLE, options)
    runner.run(
        choice.stages,
        here,
        deadline=deadline or _DEADLINES[options.level],
        conclude=partial(
            conclude,
            launch=here,
            left_out=choice.left_out,
            json_path=json_path,
            fail_on=fail_on,
        ),
        on_stage=note_device,
    )
