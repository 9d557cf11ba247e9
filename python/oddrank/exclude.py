"""Makes the list of nodes that a job should leave out, for SLURM, PBS and scripts.

Jobs lose a node on the list: it is there only if a finding names it with medium or high confidence
and has `drains_node`.
"""

import os
import re
from collections.abc import Collection, Mapping

from oddrank.errors import LaunchError
from oddrank.launch import hostlist
from oddrank.report import Report

ADVICE = "give --write-exclude a file in a folder you can write, or -"

# At most so many comments on nodes that stay.
_MOST_TOLD = 32
_NUMBERED = re.compile(r"([^0-9]*)([0-9]{0,9})")
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")


def slurm_nodes() -> list[str]:
    """Returns SLURM's names of this job's nodes; empty outside SLURM, or if they can't be read."""
    names = os.environ.get("SLURM_JOB_NODELIST", "")
    try:
        return hostlist.expand(names) if names else []
    except LaunchError:
        return []


def text(report: Report, host_of: Mapping[int, str], nodelist: Collection[str] = ()) -> str:
    """Returns one name per line, as SLURM reads them from a file and mpirun from a hostfile.

    host_of: rank -> its host. nodelist: the scheduler's names of the job's nodes. The list has
    these names: if hosts call themselves node1.cluster.org, SLURM knows node1 only. Comments say
    why each node is left out, give the list as an option of sbatch and as PBS's command, and say
    why other named nodes stay.
    """
    why: dict[str, str] = {}
    stay: dict[str, str] = {}
    for finding in report.findings:
        its = {host_of[rank] for rank in finding.who.ranks if rank in host_of}
        hosts = {_name(host, nodelist) for host in its if _HOST.fullmatch(host)}
        text = " ".join(finding.what.split())[:300]
        # Jobs lose a node to a finding that surely blames it: either end of a link may be at fault.
        sure = finding.confidence.level != "low" and (finding.who.kind != "link" or len(hosts) == 1)
        for host in hosts:
            if sure and finding.drains_node:
                why.setdefault(host, text)
            else:
                stay.setdefault(host, f"{text} ({finding.cause})")
    names = sorted(why, key=_order)
    count = f"{len(names) or 'no'} node{'s' * (len(names) != 1)}"
    lines = [f"# oddrank {report.tool}: {count} to leave out"]
    if names:
        known = nodelist or {name.partition(".")[0] for name in names}
        short = list(dict.fromkeys(_name(name, known) for name in names))
        lines += [
            *(f"# {name}: {why[name]}" for name in names),
            f"# SLURM: --exclude={','.join(short)}",
            f"# PBS: pbsnodes -o {' '.join(names)}",
        ]
    others = sorted(stay.keys() - why.keys(), key=_order)
    lines += [f"# {name} stays: {stay[name]}" for name in others[:_MOST_TOLD]]
    if len(others) > _MOST_TOLD:
        lines.append(f"# {len(others) - _MOST_TOLD} more nodes that are named stay")
    return "\n".join([*lines, *names]) + "\n"


def _name(host: str, known: Collection[str]) -> str:
    """Returns the part before the first dot if only that is in `known`; else the whole name."""
    short = host.partition(".")[0]
    return short if host not in known and short in known else host


def _order(name: str) -> list[tuple[str, int]]:
    """Returns the key by which n2 comes before n10."""
    return [(text, int(number or 0)) for text, number in _NUMBERED.findall(name)]
