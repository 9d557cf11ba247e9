"""`python -m oddrank` and `torchrun -m oddrank`: the same entry as the `oddrank` command."""

import signal
import sys

# Commands of many ranks take SIGTERM as an event (control/session.py). A launcher sends it to all
# when one rank has died, perhaps while the others still start: it must find them alive.
if sys.argv[1:2] in (["selftest"], ["bench"]):
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

from oddrank.cli import main  # after it: loading click takes a while

if __name__ == "__main__":
    main()
