"""Variables of ranks that say where evidence is, and those that may be shown."""

from collections.abc import Mapping

from oddrank.launch.launchers import LAUNCHERS
from oddrank.machine.settings import SETTINGS

FLIGHT_FILE = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
FLIGHT_PIPE = ("TORCH_FR_DEBUG_INFO_PIPE_FILE", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE")
ERROR_FILE = ("TORCHELASTIC_ERROR_FILE",)
RAS = ("NCCL_RAS_ADDR",)
_HOMES = ("HOME", "XDG_CACHE_HOME")

_LAUNCH = tuple(
    name
    for row in LAUNCHERS
    for names in (row.rank, row.world, row.local_rank, row.local_world, row.node, row.nodes)
    for name in names.split()
)
# Names of jobs and attempts, numbers and addresses: no secrets.
_JOB = (
    "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT",
    "TORCHELASTIC_MAX_RESTARTS", "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_JOB_NODELIST",
    "SLURM_RESTART_COUNT", "CUDA_VISIBLE_DEVICES", "ODDRANK_DIR", "ODDRANK_JOB",
    "ODDRANK_TRACE_MB", "TORCH_FR_BUFFER_SIZE",
)  # fmt: skip
SHOWN = frozenset((*SETTINGS, *_LAUNCH, *_JOB, *FLIGHT_FILE, *FLIGHT_PIPE, *ERROR_FILE, *RAS))
"""The white list: values of other variables may be secrets."""
NAMES = SHOWN | set(_HOMES)
"""Those that sources use. They stay in this process."""
_MOST_TEXT = 4096


def chosen(environ: Mapping[str, str], names: frozenset[str]) -> dict[str, str]:
    """Returns the variables with these names; a very long value is cut."""
    return {name: environ[name][:_MOST_TEXT] for name in sorted(names & environ.keys())}
