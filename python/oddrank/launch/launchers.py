"""The table of launchers: their variables, and when they are this process's own. Reads them.

Processes inherit variables. torchrun, mpirun and mpiexec start their ranks themselves and may run
in a SLURM step, whose variables then describe their agent. A batch script and an interactive shell
have SLURM_PROCID=0 and SLURM_NTASKS without being a rank.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from oddrank.errors import LaunchError
from oddrank.launch import hostlist

Environ = Mapping[str, str]
Number = tuple[str, int]  # a variable that was found: its name and its number

_MAX_RANKS = 1 << 24

# Steps that SLURM makes by itself (interactive, batch, extern, pending) are numbered from here.
_FIRST_SPECIAL_STEP = 0xFFFFFFF0


def find(environ: Environ, names: str) -> tuple[str, str] | None:
    """Returns the first of the names (separated by blanks) that is not empty, and its value."""
    for name in names.split():
        if environ.get(name):
            return name, environ[name]
    return None


def number(environ: Environ, names: str) -> Number | None:
    """Returns name and value of the first name that is set, as a number from 0.

    LaunchError if the value is no number.
    """
    found = find(environ, names)
    if found is None:
        return None
    name, text = found
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise LaunchError(f"{name}={text[:40]!r} is not a number: set it to one or unset it")
    return name, int(text)


def needed(environ: Environ, names: str, because: Number) -> Number:
    """Returns `number`'s result. LaunchError if no name is set: `because` needs one."""
    found = number(environ, names)
    if found is None:
        missing = " or ".join(names.split())
        raise LaunchError(f"{say(because)} is set without {missing}: set both or neither")
    return found


def check_world(world: Number) -> None:
    if not 0 < world[1] <= _MAX_RANKS:
        raise LaunchError(f"{say(world)} is no number of ranks: set it to 1 or more")


def check_below(index: Number, count: Number) -> None:
    if index[1] >= count[1]:
        raise LaunchError(f"{say(index)} must be less than {say(count)}: ranks count from 0")


def contradiction(one: Number, other: Number) -> LaunchError:
    return LaunchError(
        f"{say(one)} and {say(other)} contradict each other:"
        " unset what is left over from another launcher"
    )


def say(found: Number) -> str:
    return f"{found[0]}={found[1]}"


@dataclass(frozen=True)
class Launcher:
    """A launcher's variables. If a text has several names, the first that is set counts.

    mark: a variable without which the others are leftovers.
    one_parent: the ranks of a host have one parent process, which runs nothing else.
    clears_up: may kill everything, also guards and judge, once a rank has failed or the last rank
        of a host has ended.
    fakes_terminals: its ranks write to its own terminals, for any stdout of its own.
    error_file: names a file whose message the launcher shows at the end of its own report.
    relabels: starts no processes; renumbers another launcher's processes, or any others.
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
        "torchrun", mark="TORCHELASTIC_RUN_ID", rank="RANK", world="WORLD_SIZE",
        local_rank="LOCAL_RANK", local_world="LOCAL_WORLD_SIZE", node="GROUP_RANK",
        nodes="GROUP_WORLD_SIZE", error_file="TORCHELASTIC_ERROR_FILE",
    ),
    Launcher(
        "openmpi", rank="OMPI_COMM_WORLD_RANK", world="OMPI_COMM_WORLD_SIZE",
        local_rank="OMPI_COMM_WORLD_LOCAL_RANK", local_world="OMPI_COMM_WORLD_LOCAL_SIZE",
        clears_up=True, fakes_terminals=True,
    ),
    Launcher(  # Hydra (MPICH, Intel MPI), PALS (PBS on Cray), MVAPICH
        "pmi", rank="PMI_RANK PALS_RANKID", world="PMI_SIZE",
        local_rank="MPI_LOCALRANKID PALS_LOCAL_RANKID PMI_LOCAL_RANK MV2_COMM_WORLD_LOCAL_RANK"
        " LOCAL_RANK",
        local_world="MPI_LOCALNRANKS PALS_LOCAL_SIZE PMI_LOCAL_SIZE MV2_COMM_WORLD_LOCAL_SIZE"
        " LOCAL_WORLD_SIZE",
        node="PALS_NODEID", clears_up=True,
    ),
    Launcher(
        "slurm", mark="SLURM_STEP_ID", rank="SLURM_PROCID",
        world="SLURM_STEP_NUM_TASKS SLURM_NTASKS", local_rank="SLURM_LOCALID",
        node="SLURM_NODEID", nodes="SLURM_STEP_NUM_NODES SLURM_NNODES", clears_up=True,
        is_ours=_is_step, count_here=_step_tasks_here, first_host=_step_first_host,
    ),
    Launcher(
        "env", rank="RANK", world="WORLD_SIZE", local_rank="LOCAL_RANK",
        local_world="LOCAL_WORLD_SIZE", node="GROUP_RANK NODE_RANK", one_parent=False,
        relabels=True,
    ),
)  # fmt: skip
