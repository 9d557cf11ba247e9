"""The table of launchers: their variables, and when those are this process's own.

Processes inherit variables. torchrun, mpirun and mpiexec start their ranks themselves and may run
in a SLURM step, whose variables then describe their agent. A batch script and an interactive shell
have SLURM_PROCID=0 and SLURM_NTASKS without being a rank.
"""

from collections.abc import Callable
from dataclasses import dataclass

from oddrank.launch import hostlist
from oddrank.launch.variables import Environ, find, number

# Steps that SLURM makes by itself (interactive, batch, extern, pending) are numbered from here.
_FIRST_SPECIAL_STEP = 0xFFFFFFF0


@dataclass(frozen=True)
class Launcher:
    """A launcher's variables. If a text has several names, the first that is set counts.

    mark: a variable without which the others are leftovers.
    one_parent: the ranks of a host have one parent process, which runs nothing else.
    clears_up: may kill everything, also guards and judge, once a rank has failed or the last rank
        of a host has ended.
    fakes_terminals: its ranks write to its own terminals, whatever its stdout is.
    error_file: names a file whose message the launcher shows at the end of its own report.
    relabels: starts no processes; renumbers those of another launcher, or of none.
    """

    name: str
    rank: str
    world: str
    local_rank: str
    local_world: str = ""
    node: str = ""
    nodes: str = ""
    mark: str = ""
    one_parent: bool = True
    clears_up: bool = False
    fakes_terminals: bool = False
    error_file: str = ""
    relabels: bool = False
    is_ours: Callable[[Environ], bool] = lambda environ: True
    count_here: Callable[[Environ], int | None] = lambda environ: None
    first_host: Callable[[Environ], str | None] = lambda environ: None

    def is_active(self, environ: Environ) -> bool:
        return (
            find(environ, self.mark or self.rank) is not None
            and find(environ, self.rank) is not None
            and self.is_ours(environ)
        )


def _is_step(environ: Environ) -> bool:
    """Returns whether this process is a task of an srun step.

    sbatch, called in a step, passes the step's variables on to a batch script, which is no task:
    its node, its tasks or its list of tasks on this node do not fit the step.
    """
    step = number(environ, "SLURM_STEP_ID")
    if step is None or step[1] >= _FIRST_SPECIAL_STEP:
        return False
    names, here = environ.get("SLURM_STEP_NODELIST"), environ.get("SLURMD_NODENAME")
    if names and here and here not in hostlist.expand(names):
        return False
    if environ.get("SLURM_GTIDS") != "0" or "SLURM_HET_SIZE" in environ:
        return True
    of_step, of_job = number(environ, "SLURM_STEP_NUM_TASKS"), number(environ, "SLURM_NTASKS")
    same = not of_step or not of_job or of_step[1] == of_job[1]
    return same and _step_tasks_here(environ) in (None, 1)


def _step_tasks_here(environ: Environ) -> int | None:
    counts = find(environ, "SLURM_STEP_TASKS_PER_NODE SLURM_TASKS_PER_NODE")
    node = number(environ, "SLURM_NODEID")
    return hostlist.count_at(counts[1], node[1]) if counts and node else None


def _step_first_host(environ: Environ) -> str | None:
    names = find(environ, "SLURM_STEP_NODELIST SLURM_NODELIST SLURM_JOB_NODELIST")
    return hostlist.first(names[1]) if names else None


# Innermost first: if two are active, the lower one started the upper one.
LAUNCHERS = (
    Launcher(
        "torchrun",
        mark="TORCHELASTIC_RUN_ID",
        rank="RANK",
        world="WORLD_SIZE",
        local_rank="LOCAL_RANK",
        local_world="LOCAL_WORLD_SIZE",
        node="GROUP_RANK",
        nodes="GROUP_WORLD_SIZE",
        error_file="TORCHELASTIC_ERROR_FILE",
    ),
    Launcher(
        "openmpi",
        rank="OMPI_COMM_WORLD_RANK",
        world="OMPI_COMM_WORLD_SIZE",
        local_rank="OMPI_COMM_WORLD_LOCAL_RANK",
        local_world="OMPI_COMM_WORLD_LOCAL_SIZE",
        clears_up=True,
        fakes_terminals=True,
    ),
    Launcher(  # Hydra (MPICH, Intel MPI), PALS (PBS on Cray), MVAPICH
        "pmi",
        rank="PMI_RANK PALS_RANKID",
        world="PMI_SIZE",
        local_rank="MPI_LOCALRANKID PALS_LOCAL_RANKID PMI_LOCAL_RANK MV2_COMM_WORLD_LOCAL_RANK"
        " LOCAL_RANK",
        local_world="MPI_LOCALNRANKS PALS_LOCAL_SIZE PMI_LOCAL_SIZE MV2_COMM_WORLD_LOCAL_SIZE"
        " LOCAL_WORLD_SIZE",
        node="PALS_NODEID",
        clears_up=True,
    ),
    Launcher(
        "slurm",
        mark="SLURM_STEP_ID",
        rank="SLURM_PROCID",
        world="SLURM_STEP_NUM_TASKS SLURM_NTASKS",
        local_rank="SLURM_LOCALID",
        node="SLURM_NODEID",
        nodes="SLURM_STEP_NUM_NODES SLURM_NNODES",
        clears_up=True,
        is_ours=_is_step,
        count_here=_step_tasks_here,
        first_host=_step_first_host,
    ),
    Launcher(
        "env",
        rank="RANK",
        world="WORLD_SIZE",
        local_rank="LOCAL_RANK",
        local_world="LOCAL_WORLD_SIZE",
        node="GROUP_RANK NODE_RANK",
        one_parent=False,
        relabels=True,
    ),
)
