"""The table of environment variables, which stands in machine/variables.txt."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from oddrank.machine import settings

# Short for the values of many rows.
_VALUES = {
    "LEVEL": "LOC/NVL/NVB/C2C/PIX/PXB/PXN/P2C/PHB/SYS/NET/DIS/0..",
    "BOOL": "y/yes/1/t/true/n/no/0/f/false",
}
SHOWN = frozenset((
    *settings.SETTINGS, "CUDA_VISIBLE_DEVICES", "NCCL_RAS_ADDR", "TORCHELASTIC_ERROR_FILE",
    "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_RUN_ID",
    "TORCH_FR_BUFFER_SIZE", "TORCH_FR_DEBUG_INFO_PIPE_FILE", "TORCH_FR_DUMP_TEMP_FILE",
    "TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE",
))  # fmt: skip
"""The white list: values of other variables may be secrets."""
_NUMBER = re.compile(r"[+-]?(0x[0-9a-f]{1,16}|[0-9]{1,20})", re.IGNORECASE)


@dataclass(frozen=True)
class Variable:
    """An environment variable.

    default: "" if unset means off or nothing. since, until: versions, "" if unknown; until: the
    version that no longer reads it. instead: the name that took its place. source: where all this
    is documented. takes: its values, as words and ranges of whole numbers (`LOC/SYS/0..5`, `1..`);
    a comma at the end: or a list of them; "": any. otherwise: the library's reaction to others,
    "" if unknown.
    """

    name: str
    does: str
    default: str = ""
    since: str = ""
    until: str = ""
    instead: str = ""
    source: str = ""
    takes: str = ""
    otherwise: str = ""

    def allows(self, value: str) -> bool:
        """Returns whether the variable takes a value. An empty one is as good as none."""
        parts = value.split(",") if self.takes.endswith(",") else [value]
        wanted = self.takes.removesuffix(",").split("/")
        return (
            not self.takes
            or not value.strip()
            or all(any(_fits(one, part.strip()) for one in wanted) for part in parts)
        )

    @property
    def versions(self) -> str:
        """Returns `since torch 2.2`, `until NCCL 2.5` or "", and the name to use instead."""
        known = [f"since {self.since}" * bool(self.since), f"until {self.until}" * bool(self.until)]
        known.append(f"now {self.instead}" * bool(self.instead))
        return ", ".join(filter(None, known))


def _fits(one: str, text: str) -> bool:
    low, is_range, high = one.partition("..")
    if not is_range and not one.isdigit():
        return one.lower() == text.lower()
    if not _NUMBER.fullmatch(text):
        return False
    number = int(text, 16 if "x" in text.lower() else 10)
    if not is_range:
        return number == int(one)
    return (not low or number >= int(low)) and (not high or number <= int(high))


GUIDE = "NCCL 2.30 user guide, Environment Variables"
_OPENMP = "what follows depends on the OpenMP library"
# Section of the table -> `otherwise` of rows that take numbers, and of all others.
_OTHERWISE = {
    # src/misc/param.cc and debug.cc.
    "NCCL": ("NCCL reads only digits at the value's start; without them it takes 0 or the default",
             "NCCL ignores other words"),
    # c10d/Utils.hpp: getCvarBool and getCvarInt.
    "torch": ("torch stops with an error where the value begins with no digit",
              "torch stops with an error"),
    "OpenMP": (_OPENMP, _OPENMP),
    "others": ("", ""),
}  # fmt: skip
# Name, its effect, the version of NCCL that removed it, the variable to use instead.
_REMOVED = (
    ("NCCL_IB_CUDA_SUPPORT", "GPUDirect RDMA", "2.4", "NCCL_NET_GDR_LEVEL"),
    ("NCCL_IB_GDR_LEVEL", "GPUDirect RDMA", "2.4", "NCCL_NET_GDR_LEVEL"),
    ("NCCL_SINGLE_RING_THRESHOLD", "bytes below which one ring is used", "2.3", ""),
    ("NCCL_LL_THRESHOLD", "bytes below which LL is used", "2.5", "NCCL_PROTO"),
    ("NCCL_TREE_THRESHOLD", "bytes below which trees are used", "2.5", "NCCL_ALGO"),
)
# Newer name -> values of the older name that it has without TORCH_.
_RENAMED = {
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0..3",
    "TORCH_NCCL_BLOCKING_WAIT": "BOOL",
    "TORCH_NCCL_DESYNC_DEBUG": "BOOL",
    "TORCH_NCCL_ENABLE_TIMING": "BOOL",
}


def rows() -> Iterator[Variable]:
    """Yields all rows: from variables.txt, and rows that took another name's place."""
    whose = source = ""
    for line in settings.TABLE.splitlines():
        if line.startswith("== "):
            whose, source = line[3:].split(": ", 1)
        elif line and not line.startswith("#"):
            yield _row(whose, source, line.lstrip("!~+"))
    for name, did, version, instead in _REMOVED:
        yield Variable(name, did, until=f"NCCL {version}", instead=instead, source=GUIDE)
    for new, takes in _RENAMED.items():
        line = f"{new[6:]}|as {new}|||{takes}"
        yield replace(_row("torch", "torch 2.2, c10d/Utils.hpp", line), instead=new)


def _row(whose: str, source: str, line: str) -> Variable:
    name, does, default, since, takes = (*line.split("|"), "", "", "")[:5]
    has_numbers = any(one[:1] in ".0123456789" for one in takes.split("/") if one)
    numbers, words = _OTHERWISE[whose]
    return Variable(
        name, does, default, since=f"{whose} {since}" if since else "", source=source,
        takes=_VALUES.get(takes, takes), otherwise=numbers if has_numbers else words,
    )  # fmt: skip


TABLE: dict[str, Variable] = {row.name: row for row in rows()}  # name -> its row
KNOWN = {
    *TABLE,
    "NCCL_ENV_PLUGIN",
    "NCCL_NVTX_DISABLE",
    "NCCL_P2P_NVL_CHUNKSIZE",
    "NCCL_PAT_ENABLE",
}
"""Names of the table, and other names of NCCL that are so near to them that they look misspelt."""
FAMILIES = (
    "NCCL_", "TORCH_", "TORCHELASTIC_", "PYTORCH_", "OMP_", "MKL_", "KMP_", "GLOO_", "CUDA_",
    "CUBLAS_", "NVIDIA_TF32_", "UCX_", "FI_",
)  # fmt: skip
"""Variables with these beginnings are listed."""
