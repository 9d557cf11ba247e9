"""`oddrank selftest`: tests whether an allocation is healthy, and which rank is not."""

import math
from functools import partial

import click

from oddrank import cli, exclude, launch
from oddrank.control import runner
from oddrank.control.walk import JOIN_SHARE
from oddrank.report import exit_code
from oddrank.selftest import Depth, Options
from oddrank.selftest.report import conclude, note_device
from oddrank.selftest.stages import TABLE, choose, file_system, names

# Depth -> seconds for the whole command.
_DEADLINES: dict[Depth, float] = {"quick": 120, "normal": 300, "full": 1800}
# Depth -> seconds after which no further stage begins, except those that recheck or close one.
_ENOUGH: dict[Depth, float] = {"quick": 40}

_LIMITS = ", ".join(f"{s.name} {s.seconds:g} s" for s in choose(TABLE, Options("full")).stages)
_MOST_PATHS = 8  # every node tries each path in a process of its own


def _stages(ctx: click.Context, option: click.Parameter, value: tuple[str, ...]) -> frozenset[str]:
    chosen = frozenset(name.strip() for text in value for name in text.split(",") if name.strip())
    if value and not chosen:
        raise click.BadParameter(f"no stage is named: choose from {', '.join(names(TABLE))}")
    unknown = sorted(chosen - set(names(TABLE)))
    if unknown:
        raise click.BadParameter(
            f"{unknown[0][:40]!r} is no stage to choose: choose from {', '.join(names(TABLE))}"
            + cli.near(unknown[0], names(TABLE))
        )
    return chosen


def _paths(ctx: click.Context, option: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """Checks the text only: the file system may not answer."""
    if len(value) > _MOST_PATHS:
        raise click.BadParameter(f"at most {_MOST_PATHS} folders")
    for path in value:
        if not path.startswith("/") or len(path.encode()) > 1000 or "\0" in path:
            raise click.BadParameter(f"{path[:40]!r} is no absolute path of at most 1000 bytes")
    return tuple(dict.fromkeys(value))


@click.command(context_settings=cli.renamed(exclude="write-exclude"))
@click.option("--quick", is_flag=True,
              help="Use the fewest repeats and the smallest sizes. After"
              f" {_ENOUGH['quick']:g} s (imports and connect not counted), start only rechecks:"
              " the verdict is then incomplete.")  # fmt: skip
@click.option("--full", is_flag=True, help="Use more memory, repeats and sizes.")
@click.option("--only", metavar="STAGE,...", multiple=True, callback=_stages,
              shell_complete=cli.some_of(*names(TABLE)),
              help="Run only these stages, and those that they need."
              f" Stages: {', '.join(names(TABLE))}.")  # fmt: skip
@click.option("--skip", metavar="STAGE,...", multiple=True, callback=_stages,
              shell_complete=cli.some_of(*names(TABLE)),
              help="Run all stages except these.")  # fmt: skip
@click.option("--path", "paths", metavar="DIR", multiple=True, callback=_paths,
              help="Test this folder's file system on every node; may be repeated. Always tested:"
              " the working directory, $HOME, and $TMPDIR or /tmp.")  # fmt: skip
@click.option("--deadline", type=cli.Seconds(5, 86400), metavar="SECONDS",
              help="Time limit for the whole run, from the start of each rank (60, 60s or 5m)."
              " At the limit, names the ranks that hang; 2 s later no process is left. Default:"
              f" {_DEADLINES['quick']:g} with --quick, {_DEADLINES['full']:g} with --full, else"
              f" {_DEADLINES['normal']:g}. Each stage also has its own limit: join"
              f" {JOIN_SHARE:.0%} of the whole, {_LIMITS}.")  # fmt: skip
@click.option("--write-exclude", "exclude_path", metavar="FILE",
              callback=cli.writable(exclude.ADVICE),
              help="Write the nodes to leave out, one per line, for sbatch --exclude=./FILE."
              " Comments say why. - is stdout, after the verdict.")  # fmt: skip
@click.option("--prometheus", "prometheus_path", metavar="FILE.prom", callback=cli.prometheus_file,
              help="Write verdict and odd ranks for Prometheus's textfile collector.")  # fmt: skip
@cli.html_option
@cli.json_option
@cli.fail_on_option
def command(
    *, quick: bool, full: bool, only: frozenset[str], skip: frozenset[str], paths: tuple[str, ...],
    deadline: float | None, exclude_path: str | None, prometheus_path: str | None,
    html_path: str | None, json_path: str | None, fail_on: frozenset[str],
) -> None:  # fmt: skip
    """Test the ranks of this job: on GPUs if every rank has one, else on the CPU.

    \b
    Examples:
      torchrun --nproc-per-node 4 -m oddrank selftest --quick
      srun python -m oddrank selftest --write-exclude nodes --json report.json

    If a node never joins, torchrun starts no rank, and the self-test does not start. Under srun or
    mpirun, or with RANK and WORLD_SIZE set, it names the missing ranks.

    Exit codes: 0 healthy; 1 odd or unknown; 2 could not run; 3 incomplete; see --fail-on.
    """
    files = {"--json": json_path, "--write-exclude": exclude_path, "--prometheus": prometheus_path,
             "--html": html_path}  # fmt: skip
    cli.refuse_shared(files)
    if quick and full:
        raise click.UsageError("--quick and --full contradict each other: give one of them")
    here = launch.current()
    depth: Depth = "quick" if quick else "full" if full else "normal"
    options = Options(depth, only, skip, paths)
    choice = choose(TABLE, options)
    if only and only <= skip:
        raise click.UsageError("--skip leaves nothing of --only")
    if paths and (why := choice.left_out.get(file_system.NAME)):  # it would have no effect
        raise click.UsageError(f"--path is for stage {file_system.NAME}, which {why} leaves out")
    end = partial(conclude, launch=here, left_out=choice.left_out, files=files, fail_on=fail_on)
    runner.run(
        choice.stages, here, deadline=deadline or _DEADLINES[depth], conclude=end,
        on_stage=note_device, enough=_ENOUGH.get(depth, math.inf),
        no_verdict=exit_code("unknown", fail_on),
    )  # fmt: skip
