"""`oddrank selftest`: is this allocation healthy, and which rank is not."""

from functools import partial

import click

from oddrank import launch
from oddrank.cli import Seconds, fail_on_option, json_option
from oddrank.control import join, runner
from oddrank.selftest.runner import conclude, note_device
from oddrank.selftest.stages import STAGES


@click.command()
@click.option(
    "--deadline",
    type=Seconds(5, 86400),
    default=60,
    show_default=True,
    metavar="SECONDS",
    help="Everything ends by then. A stage also has its own: "
    + ", ".join(f"{stage.name} {stage.seconds:g}" for stage in STAGES)
    + f"; join {join.SHARE:.0%} of the whole.",
)
@json_option
@fail_on_option
def command(deadline: float, json_path: str | None, fail_on: frozenset[str]) -> None:
    """Test the ranks of this job, on GPUs if every rank has one, else on the CPU.

    torchrun --nproc-per-node 4 -m oddrank selftest

    Under torchrun a node that never comes keeps all others from starting, this test too: start
    the ranks with srun, mpirun or RANK and WORLD_SIZE to be told which ones are missing.
    """
    here = launch.current()
    runner.run(
        STAGES,
        here,
        deadline=deadline,
        conclude=partial(conclude, launch=here, json_path=json_path, fail_on=fail_on),
        on_stage=note_device,
    )
