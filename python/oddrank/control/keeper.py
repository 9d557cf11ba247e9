"""The keeper: the process that a launcher takes for the rank. The rank is its child.

SLURM kills everything in a step's cgroup on a node once the node's last task has ended; mpirun
kills all ranks one second after the first has failed. Guards and judge would die before they
report. With a keeper the launcher sees a rank end only when the run is over, just as it ended.
"""

import ctypes
import os
import signal

from oddrank import _native

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
# Signals that launchers send, or people through them.
_PASSED_ON = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2]
# Added to the deadline: the kernel ends worker, guard and judge a little earlier.
_LAST_SECONDS = 1.8


def keep_this_rank(deadline: float) -> None:
    """Forks; returns in the child, which is the rank from now on. The parent becomes its keeper.

    deadline: of the command, in seconds from now. Call before threads and the session exist.
    """
    core = _native.core()
    library = ctypes.CDLL(None)
    keeper = os.getpid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, no exit status could be read
    held = signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
    # Guard and judge become the keeper's children once their parent, the rank, has died.
    library.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    rank = os.fork()
    if rank:
        core.control_keep(rank, deadline + _LAST_SECONDS, [int(s) for s in _PASSED_ON])
    signal.pthread_sigmask(signal.SIG_SETMASK, held)
    # A launcher that kills the keeper means the rank.
    library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != keeper:
        os.kill(os.getpid(), signal.SIGKILL)
