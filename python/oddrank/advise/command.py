"""`oddrank advise`: explains the environment variables of a job, and warns of bad ones."""

import os

import click

from oddrank import launch, render
from oddrank.advise import environ, report
from oddrank.cli import Seconds, fail_on_option, json_option
from oddrank.errors import LaunchError, OddrankError
from oddrank.run.collect.children import Stop


@click.command()
@click.option("--pid", type=click.IntRange(1, 1 << 22), metavar="PID",
              help="A process of this host, as its variables were when it began.")  # fmt: skip
@click.option("--job", "job", is_flag=False, flag_value="", metavar="[NAME]",
              help="The ranks of a job on this host; without NAME the newest.")  # fmt: skip
@click.option("--deadline", type=Seconds(min=0.5, max=600), default="30s", show_default=True,
              help="Time limit for reading the variables.")  # fmt: skip
@json_option
@fail_on_option
def command(
    pid: int | None,
    job: str | None,
    deadline: float,
    json_path: str | None,
    fail_on: frozenset[str],
) -> int:
    """Explain the environment variables that are set, and warn of those known to hurt.

    \b
    Examples:
      oddrank advise                    the variables of this shell
      oddrank advise --job              those of the newest job's ranks on this host
      oddrank advise --pid 4711
      srun --ntasks-per-node 1 oddrank advise --job slurm-4711.0
      torchrun --nproc-per-node 8 -m oddrank advise     as the job sees it

    It knows variables of NCCL, torch, torchrun, CUDA, OpenMP, MKL, gloo, libfabric and UCX. Values
    are shown only of variables on a white list: others may be secrets. What a process sets after
    it began is not seen. In a job one rank of each node prints, and rank 0 writes the JSON.

    Exit codes: 0 nothing is known to hurt; 1 something is; 2 could not run.
    """
    if pid is not None and job is not None:
        raise click.UsageError("give --pid or --job, not both")
    try:
        here = launch.current()
    except LaunchError:  # doctor shows it
        here = launch.current({})
    if here.local_rank != 0:
        return 0
    if here.rank != 0:
        json_path = None
    host = os.uname().nodename
    stop = Stop()
    with stop.on_signals():
        if job is not None:
            name, processes = environ.of_job(job, host, deadline, stop)
            made = report.made(processes, host, job=name)
        else:
            one = environ.here() if pid is None else environ.of_pid(pid, deadline, stop)
            alone = "this environment" if pid is None else f"process {pid}"
            made = report.made([one], host, alone=alone)
    if stop.by:
        raise OddrankError(f"{stop.by} ended it")
    rows = list(report.table(made))
    render.deliver(made, json_path, report.COLUMNS if rows else (), rows)
    return made.exit_code(fail_on)
