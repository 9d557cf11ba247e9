"""`python -m oddrank` and `torchrun -m oddrank`: the same entry as the `oddrank` command."""

import signal
import sys

# Jobs of many ranks handle SIGTERM as an event (control/session.py). If a rank dies, the launcher
# sends SIGTERM to all others, perhaps while they start: it must not end them.
_JOBS = (["selftest"], ["bench", "run"], ["bench", "pairs"])
if (sys.argv[1:2] in _JOBS or sys.argv[1:3] in _JOBS) and {"--help", "-h"}.isdisjoint(sys.argv):
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

from oddrank.cli import main  # noqa: E402 (after the mask: loading click takes a while)

if __name__ == "__main__":
    main()
