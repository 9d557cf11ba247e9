"""The command line: a table of commands, and the one place where errors become exit codes."""

import sys


def main() -> None:
    """Entry of `oddrank`, `python -m oddrank`, `torchrun -m oddrank` and `srun oddrank`."""
    sys.exit("no commands yet")
