"""The keeper: the process that a launcher takes for the rank, while the rank is its child.

SLURM kills all that runs in a step's cgroup on a node whose last task has ended, mpirun all ranks
one second after the first has failed: the guard that was about to say how its rank died, the judge.
With a keeper the launcher sees a rank end once the run is over, and then exactly as it ended.
"""

import ctypes
import os
import signal

from oddrank import _native

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
# What launchers send, and people through them.
_PASSED_ON = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2]
# The kernel ends worker, guard and judge a little earlier.
_LAST_SECONDS = 1.8


def keep_this_rank(deadline: float) -> None:
    """Forks; returns in the child, which is the rank from now on. The parent becomes its keeper.

    deadline: seconds from now, for everything. Call before threads exist, and before the session.
    """
    core = _native.core()
    library = ctypes.CDLL(None)
    keeper = os.getpid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # where it is ignored, nobody learns who ended
    held = signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
    # Of guard and judge, too, once their parent, the rank, has died.
    library.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    rank = os.fork()
    if rank:
        core.control_keep(rank, deadline + _LAST_SECONDS, [int(s) for s in _PASSED_ON])
    signal.pthread_sigmask(signal.SIG_SETMASK, held)
    # A launcher that kills what it knows means the rank.
    library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != keeper:
        os.kill(os.getpid(), signal.SIGKILL)
