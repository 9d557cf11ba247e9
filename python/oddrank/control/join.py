"""The first stage of every command with ranks: they join, each with a local rank of its own.

Nothing is measured: a rank's result is that its guard has come.
"""

from oddrank.control import findings
from oddrank.control.stages import RunState
from oddrank.finding import Finding

NAME = "join"
# Share of the command's time: importing torch from a busy file system can take minutes.
SHARE = 0.75


def judge(run: RunState) -> list[Finding]:
    """Finds ranks with the local rank of another rank of their host."""
    return [
        findings.wrong_local_rank(run, rank, expected, twins)
        for rank, expected, twins in _misplaced(run)
    ]


def _misplaced(run: RunState) -> list[tuple[int, int, list[int]]]:
    """Returns (rank, the local rank it should have, other ranks of its host with the same one).

    Launchers number the ranks of a host in the order of their ranks: only a rank that deviates
    from that is named, not the rank whose number it has.
    """
    hosts: dict[tuple[int, str], list[int]] = {}
    for rank, s in run.states.items():
        hosts.setdefault((s.node, s.host), []).append(rank)
    found = []
    for members in hosts.values():
        members.sort()
        has = {rank: run.states[rank].local_rank for rank in members}
        for expected, rank in enumerate(members):
            twins = [other for other in members if other != rank and has[other] == has[rank]]
            if twins and has[rank] != expected:
                found.append((rank, expected, twins))
    return found
