"""The control plane: every rank has a guard, rank 0 a judge, and every wait a deadline.

Worker side: `start` and `Session`. Judge side: `Root`, `Round`, `RankState`.
"""

from oddrank.control.laps import Laps
from oddrank.control.root import RankState, Root, Round, Snapshot
from oddrank.control.session import Member, Session, SessionEnded, start

__all__ = [
    "Laps",
    "Member",
    "RankState",
    "Root",
    "Round",
    "Session",
    "SessionEnded",
    "Snapshot",
    "start",
]
