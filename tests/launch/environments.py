"""Environments that launchers make: SLURM 22.05 on two nodes (captured), torchrun 2.13."""


def _parsed(text: str) -> dict[str, str]:
    return dict(pair.split("=") for pair in text.split())


# The batch script of `sbatch -N2 -n3`: it has a task number but is no rank.
SBATCH = _parsed("""
    ENVIRONMENT=BATCH SLURMD_NODENAME=n1 SLURM_GTIDS=0 SLURM_JOBID=7 SLURM_JOB_ID=7
    SLURM_JOB_NODELIST=n[1-2] SLURM_JOB_NUM_NODES=2 SLURM_LOCALID=0 SLURM_NNODES=2 SLURM_NODEID=0
    SLURM_NODELIST=n[1-2] SLURM_NPROCS=3 SLURM_NTASKS=3 SLURM_PROCID=0 SLURM_TASKS_PER_NODE=2,1
    SLURM_TASK_PID=22283
""")

_STEP = _parsed("""
    SLURM_STEPID=0 SLURM_STEP_ID=0 SLURM_STEP_NODELIST=n[1-2] SLURM_STEP_NUM_NODES=2
    SLURM_STEP_NUM_TASKS=3 SLURM_STEP_TASKS_PER_NODE=2,1
""")

# `srun` in that script: its three tasks.
STEP = [
    {**SBATCH, **_STEP, **_parsed(own)}
    for own in (
        "SLURM_GTIDS=0,1",
        "SLURM_GTIDS=0,1 SLURM_PROCID=1 SLURM_LOCALID=1",
        "SLURMD_NODENAME=n2 SLURM_GTIDS=2 SLURM_PROCID=2 SLURM_NODEID=1",
    )
]

# `srun -N1 -n2` in that script, task 1: the job has more nodes than the step.
SMALL_STEP = STEP[1] | _parsed("""
    SLURM_NNODES=1 SLURM_NTASKS=2 SLURM_STEP_NODELIST=n1 SLURM_STEP_NUM_NODES=1
    SLURM_STEP_NUM_TASKS=2 SLURM_STEP_TASKS_PER_NODE=2 SLURM_TASKS_PER_NODE=2
""")

# A shell of `srun -N1 -n1 --pty` in that script.
SHELL_STEP = SMALL_STEP | _parsed("""
    SLURM_STEP_NUM_TASKS=1 SLURM_NTASKS=1 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_GTIDS=0
    SLURM_STEP_TASKS_PER_NODE=1
""")

# `srun --mpi=pmi2`: PMI's variables from SLURM's plugin, without a local rank.
PMI2_STEP = [
    task | _parsed(f"PMI_FD=11 PMI_JOBID=7.0 PMI_RANK={rank} PMI_SIZE=3")
    for rank, task in enumerate(STEP)
]

# The batch script of `sbatch -N1 -n2`, typed in a task of STEP: the step's variables come along.
SBATCH_IN_STEP = {**SBATCH, **_STEP} | _parsed("""
    SLURM_JOB_ID=8 SLURM_NNODES=1 SLURM_NODELIST=n1 SLURM_NTASKS=2 SLURM_TASKS_PER_NODE=2
""")

# A shell of `salloc -N2 -n3`, on the machine where salloc was typed.
SALLOC = _parsed("""
    SLURM_JOB_ID=7 SLURM_JOB_NODELIST=n[1-2] SLURM_NNODES=2 SLURM_NODELIST=n[1-2] SLURM_NTASKS=3
    SLURM_TASKS_PER_NODE=2,1
""")

# The same with LaunchParameters=use_interactive_step: the shell is a step.
INTERACTIVE_STEP = SBATCH | _parsed("""
    SLURM_STEPID=4294967290 SLURM_STEP_ID=4294967290 SLURM_STEP_NODELIST=n1 SLURM_STEP_NUM_NODES=1
    SLURM_STEP_NUM_TASKS=1 SLURM_STEP_TASKS_PER_NODE=1
""")


def torchrun(rank: int, local: int, node: int, *, local_world: int, nodes: int) -> dict[str, str]:
    return _parsed(f"""
        RANK={rank} LOCAL_RANK={local} WORLD_SIZE={local_world * nodes}
        LOCAL_WORLD_SIZE={local_world} GROUP_RANK={node} GROUP_WORLD_SIZE={nodes} MASTER_ADDR=n1
        MASTER_PORT=43091 TORCHELASTIC_RUN_ID=77
    """)


# srun starts one agent on each of two nodes; the rendezvous numbered them the other way round.
TORCHRUN_IN_STEP = {**STEP[2], **torchrun(0, 0, 0, local_world=4, nodes=2)}

OPEN_MPI = _parsed("""
    OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1
    OMPI_COMM_WORLD_LOCAL_SIZE=2 OMPI_COMM_WORLD_NODE_RANK=1 PMIX_RANK=3
""")

HYDRA = _parsed("PMI_RANK=2 PMI_SIZE=4 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2")

PALS = _parsed("""
    PALS_RANKID=13 PALS_LOCAL_RANKID=1 PALS_NODEID=1 PMI_RANK=13 PMI_SIZE=24 PMI_LOCAL_RANK=1
    PMI_LOCAL_SIZE=12 PBS_JOBID=123.pbs
""")

TORCHRUN = torchrun(5, 1, 1, local_world=4, nodes=2)


def environ(words: str) -> dict[str, str]:
    """Returns what `words` name: environments of this module, as STEP[2], and NAME=value."""
    found: dict[str, str] = {}
    for word in words.split():
        name, is_value, value = word.partition("=")
        place, _, task = word.rstrip("]").partition("[")
        known = globals().get(place)
        found |= {name: value} if is_value else known[int(task)] if task else known
    return found
