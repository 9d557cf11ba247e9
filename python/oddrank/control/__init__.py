"""The control plane: every rank has a guard, rank 0 a judge, and every wait a deadline.

Worker side: `start` and `Session`, in session.py. Judge side: `Root`, `StageRound`, `RankState`, in
root.py.
"""
