"""Saves all evidence of a job on this node: `oddrank collect`.

The way: find the job -> one child process a source -> files of a folder -> manifest.
"""

OUTPUT = "oddrank-collected"
"""The folder for evidence, by default."""
