"""The report of advise: which variables are set, what they do, and what is wrong with them."""

from collections.abc import Iterator, Sequence
from typing import Any

from oddrank.advise import checks, findings
from oddrank.advise.checks import Hit
from oddrank.advise.environ import Process
from oddrank.advise.variables import TABLE
from oddrank.finding import Finding, fold
from oddrank.report import Report

COLUMNS = ("variable", "what it does")
_MOST_VALUE = 24  # characters in the table; the JSON has all
_OTHER = "not in oddrank's table"


def made(processes: Sequence[Process], host: str, *, job: str = "", alone: str = "") -> Report:
    """Returns the report of a job's ranks, or of one process, which `alone` names."""
    rows = list(_rows(processes))
    found = list(_findings(processes, host, alone))
    names = len({row["name"] for row in rows})
    are = "variable is" if names == 1 else "variables are"
    why = f"{names} {are} set of NCCL, torch, CUDA and their kin, none known to hurt"
    world = {"job": job} if job else {}
    data = {"variables": rows, "ranks": [p.rank for p in processes if p.rank is not None]}
    return Report.of("advise", world, data, found, complete=True, why="" if found else why)


def table(report: Report) -> Iterator[tuple[str, str]]:
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
