"""`oddrank advise`: explains the environment variables of a job, and warns of bad ones."""

import os
from collections.abc import Iterator, Sequence
from typing import Any

import click

from oddrank import launch, render
from oddrank.advise import checks, environ, findings
from oddrank.advise.checks import Hit
from oddrank.advise.environ import Process
from oddrank.advise.variables import TABLE
from oddrank.cli import Seconds, fail_on_option, json_option
from oddrank.errors import LaunchError, OddrankError
from oddrank.finding import Finding, fold
from oddrank.report import Report
from oddrank.run.collect.children import Stop

COLUMNS = ("variable", "what it does")
_MOST_VALUE = 24  # characters in the table; the JSON has all
_OTHER = "not in oddrank's table"


def _report(processes: Sequence[Process], host: str, *, job: str = "", alone: str = "") -> Report:
    """Returns the report of a job's ranks, or of one process, which `alone` names."""
    rows = list(_rows(processes))
    found = list(_findings(processes, host, alone))
    names = len({row["name"] for row in rows})
    are = "variable is" if names == 1 else "variables are"
    why = f"{names} {are} set of NCCL, torch, CUDA and their kin, none known to hurt"
    world = {"job": job} if job else {}
    data = {"variables": rows, "ranks": [p.rank for p in processes if p.rank is not None]}
    return Report.of("advise", world, data, found, complete=True, why="" if found else why)


def _table(report: Report) -> Iterator[tuple[str, str]]:
    """Yields the rows of the table: variables of several values have several rows."""
    for row in report.data["variables"]:
        value = row["value"] if row["shown"] else ""
        if len(value) > _MOST_VALUE:
            value = f"{value[:_MOST_VALUE]}..."
        name = f"{row['name']}={value}" if row["shown"] else f"{row['name']} (not shown)"
        default = f"default: {row['default']}" if row["default"] else ""
        ranks = f"ranks {row['ranks']}" if row["ranks"] else ""
        yield name, "; ".join(filter(None, (row["does"], default, row["versions"], ranks)))


def _rows(processes: Sequence[Process]) -> Iterator[dict[str, Any]]:
    for name in sorted({name for process in processes for name in process.variables}):
        groups: dict[str | None, list[Process]] = {}
        for process in processes:
            if name in process.variables:
                shown = findings.value_text(name, process.variables[name])
                groups.setdefault(shown, []).append(process)
        everywhere = len(groups) == 1 and len(next(iter(groups.values()))) == len(processes)
        for value, members in groups.items():
            ranks = fold(one.rank for one in members if one.rank is not None)
            row = TABLE.get(name)
            yield {
                "name": name,
                "value": value,
                "shown": value is not None,
                "ranks": "" if everywhere else ranks,
                "does": row.does if row else _OTHER,
                "default": row.default if row else "",
                "versions": row.versions if row else "",
                "source": row.source if row else "",
            }


def _findings(processes: Sequence[Process], host: str, alone: str) -> Iterator[Finding]:
    """Yields a finding for each hit, once for all ranks that have it."""
    groups: dict[str, tuple[Hit, list[Process]]] = {}
    for process in processes:
        for hit in checks.judge(process):
            key = f"{hit.cause} {hit.names} {sorted(hit.facts.items())}"
            groups.setdefault(key, (hit, []))[1].append(process)
    for hit, members in groups.values():
        yield findings.finding(hit, findings.who(members, host, alone))
    for hit, rarest in checks.judge_together(processes):
        yield findings.finding(hit, findings.who(rarest, host, alone))


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
            made = _report(processes, host, job=name)
        else:
            one = environ.here() if pid is None else environ.of_pid(pid, deadline, stop)
            alone = "this environment" if pid is None else f"process {pid}"
            made = _report([one], host, alone=alone)
    if stop.by:
        raise OddrankError(f"{stop.by} ended it")
    rows = list(_table(made))
    render.deliver(made, json_path, COLUMNS if rows else (), rows)
    return made.exit_code(fail_on)
