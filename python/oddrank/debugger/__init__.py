"""Stops one rank of a job in pdb, while the others wait for it."""
