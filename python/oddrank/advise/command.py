"""`oddrank advise`: explains the environment variables of a job, and warns of bad ones."""

from typing import Any

import click

from oddrank import launch, render
from oddrank.advise import checks
from oddrank.advise.checks import Process
from oddrank.advise.variables import SHOWN, TABLE
from oddrank.cli import fail_on_option, json_option
from oddrank.errors import LaunchError
from oddrank.report import Report

COLUMNS = ("variable", "what it does")
_MOST_VALUE = 24  # characters in the table; the JSON has all


def _report(process: Process) -> Report:
    rows = [_row(name, value) for name, value in process.variables.items()]
    found = checks.judge(process)
    are = "variable is" if len(rows) == 1 else "variables are"
    why = f"{len(rows)} {are} set of NCCL, torch, CUDA and their kin, none known to hurt"
    return Report.of("advise", {}, {"variables": rows}, found, complete=True,
                     why="" if found else why)  # fmt: skip


def _row(name: str, value: str | None) -> dict[str, Any]:
    """Describes a variable. Its value is shown if it is of the white list: it may be a secret."""
    shown, row = name in SHOWN and value is not None, TABLE.get(name)
    return {
        "name": name,
        "value": value if shown else None,
        "shown": shown,
        "does": row.does if row else "not in oddrank's table",
        "default": row.default if row else "",
        "versions": row.versions if row else "",
        "source": row.source if row else "",
    }


def _as_shown(row: dict[str, Any]) -> tuple[str, str]:
    value = row["value"] or ""
    if len(value) > _MOST_VALUE:
        value = f"{value[:_MOST_VALUE]}..."
    name = f"{row['name']}={value}" if row["shown"] else f"{row['name']} (not shown)"
    default = f"default: {row['default']}" if row["default"] else ""
    return name, "; ".join(filter(None, (row["does"], default, row["versions"])))


@click.command()
@json_option
@fail_on_option
def command(json_path: str | None, fail_on: frozenset[str]) -> int:
    """Explain the environment variables that are set, and warn of those known to hurt.

    \b
    Examples:
      oddrank advise                    the variables of this shell
      srun --ntasks-per-node 1 oddrank advise
      torchrun --nproc-per-node 8 -m oddrank advise     as the job sees it

    It knows variables of NCCL, torch, torchrun, CUDA, OpenMP, MKL, gloo, libfabric and UCX. Values
    are shown only of variables on a white list: others may be secrets. In a job one rank of each
    node prints, and rank 0 writes the JSON.

    Exit codes: 0 nothing is known to hurt; 1 something is; 2 could not run.
    """
    try:
        here = launch.current()
    except LaunchError:  # the variables contradict each other: doctor says which
        here = launch.current({})
    if here.local_rank != 0:
        return 0
    made = _report(checks.here(here))
    every = made.data["variables"]
    rows = [_as_shown(row) for row in every if not row["name"].startswith("TORCHELASTIC_")]
    if count := len(every) - len(rows):
        rows.append(("TORCHELASTIC_*", f"{count} that torchrun sets itself: see --json"))
    render.deliver(made, json_path if here.rank == 0 else None, COLUMNS if rows else (), rows)
    return made.exit_code(fail_on)
