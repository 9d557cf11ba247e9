"""The first stage of every command with ranks: who came, from which place on its host.

Nothing is measured: a rank's result is that its guard has come.
"""

from oddrank.control import findings
from oddrank.control.stages import Rounds
from oddrank.finding import Finding

NAME = "join"
# Of the command's time: to import torch from a busy file system can take minutes.
SHARE = 0.75


def judge(rounds: Rounds) -> list[Finding]:
    """Two ranks of a host in one place."""
    return [
        findings.wrong_local_rank(rounds, rank, expected, twins)
        for rank, expected, twins in _misplaced(rounds)
    ]


def _misplaced(rounds: Rounds) -> list[tuple[int, int, list[int]]]:
    """Ranks whose local rank another of their host has: (rank, the right one, those others).

    Launchers number the ranks of a host in the order of their ranks: who deviates from that is
    named, and not the one whose number it took.
    """
    hosts: dict[tuple[int, str], list[int]] = {}
    for rank, s in rounds.states.items():
        hosts.setdefault((s.node, s.host), []).append(rank)
    found = []
    for members in hosts.values():
        members.sort()
        has = {rank: rounds.states[rank].local_rank for rank in members}
        for expected, rank in enumerate(members):
            twins = [other for other in members if other != rank and has[other] == has[rank]]
            if twins and has[rank] != expected:
                found.append((rank, expected, twins))
    return found
