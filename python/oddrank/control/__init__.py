"""The control plane: every rank has a guard, rank 0 a judge, and every wait a deadline.

Worker side: `start` and `Session`. Judge side: `Root`, `StageRound`, `RankState`.
"""

from oddrank.control.root import RankState, Root, Snapshot, StageRound
from oddrank.control.session import Member, Session, SessionEnded, Timestamps, start

__all__ = [
    "Member",
    "RankState",
    "Root",
    "Session",
    "SessionEnded",
    "Snapshot",
    "StageRound",
    "Timestamps",
    "start",
]
