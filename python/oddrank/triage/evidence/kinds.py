"""All kinds of evidence, a row each, and the loop that reads them."""

from collections.abc import Iterator, Sequence

from oddrank.inputs import Item, Notes
from oddrank.inputs.files import EMPTY, is_text
from oddrank.triage.evidence import (
    Kind,
    awaited,
    collected,
    flight_recorder,
    kernel,
    kubernetes,
    launcher,
    log_lines,
    nccl_debug,
    nccl_ras,
    nvidia_smi,
    record,
    reports,
    stacks,
    tracebacks,
    watchdog,
)
from oddrank.triage.facts import Fact

# Kind -> what it is and where it comes from: the table of docs/triage.md.
KINDS: dict[Kind, str] = {
    awaited.KIND: "lines that name ranks that Horovod, JAX, a store or an engine misses",
    collected.KIND: "an archive of `oddrank collect`: the states of a node's ranks and their "
    "cgroups' counts, with all else here that the node had ([collect](collect.md))",
    flight_recorder.KIND: "pickle or JSON, of torch 2.2 and newer (`TORCH_FR_DUMP_TEMP_FILE`; "
    "before torch 2.9 `TORCH_NCCL_DEBUG_INFO_TEMP_FILE`), NCCL (nccl2 of torch 2.15, too), Gloo, "
    "XCCL, RCCL",
    kernel.KIND: "`dmesg`, journals and syslog: Xid, SXid, NVLink, link flaps, out of memory, "
    "file systems",
    kubernetes.KIND: "`kubectl get pods,nodes -o json`",
    kubernetes.TYPED: "text of `kubectl get pods` and `get events`, `kubectl describe pod`",
    launcher.KIND: "torchrun and its `error.json`, srun and slurmstepd, mpirun, Hydra, Ray, pdsh, "
    "kubectl, Docker's and Kubernetes' files; their prefixes say which rank wrote a line",
    nccl_debug.KIND: "`NCCL_DEBUG=INFO` with `NCCL_DEBUG_SUBSYS=COLL`",
    nccl_ras.KIND: "`ncclras` as text or JSON",
    nvidia_smi.KIND: "`nvidia-smi -q`",
    record.KIND: "`/dev/shm/oddrank-$UID/<job>/` of a script with `oddrank.arm()` or under "
    "`oddrank run`; what `oddrank collect` copied",
    reports.KIND: "`--json` of `selftest` and `bench`",
    stacks.KIND: "`py-spy dump` (also of many hosts in one file), faulthandler, Python tracebacks, "
    "`gdb -ex 'thread apply all bt'`, pystack, `python -m profiling.sampling dump` (Python 3.15), "
    "torch's debug server",
    tracebacks.KIND: "last words in logs: of Python, C++, signals, CUDA, NCCL and gloo",
    watchdog.KIND: "logs of torch 1.13 to 2.15's watchdogs (NCCL, nccl2, HCCL, XCCL), and those of "
    "engines",
}
_MOST_STRANGE = 8
_CORE = "a core is not read: give what `pystack core` or gdb's `thread apply all bt` say of it"


def read(
    items: Sequence[Item], notes: Notes, kinds: Sequence[Kind] | None = None
) -> Iterator[tuple[Kind, list[Item], list[Fact]]]:
    """Yields each kind that was found, its files and its facts. Files of no kind get a note."""
    items = log_lines.placed(items)
    left = [item for item in items if not _is_core(item)]
    known = {item.name for item in items if _is_core(item)}
    for name in sorted(known):
        notes.add(name, _CORE)
    kinds = tuple(KINDS) if kinds is None else kinds
    for kind in sorted(kinds, key=lambda kind: not kind.binary):
        chosen = [item for item in left if kind.sniff(item)]
        if kind.binary:
            names = {item.name for item in chosen}
            left = [item for item in left if item.name not in names]
        if chosen:
            known |= {item.name for item in chosen}
            yield kind, chosen, list(kind.read(chosen, notes))
    strange = [item for item in items if item.name not in known]
    # A folder may hold other things than evidence; a file that was named is meant to be read.
    strange.sort(key=lambda item: item.name not in notes.named)
    for item in strange[:_MOST_STRANGE]:
        lost = item.name in notes.named and item.size > 0 and not is_text(item)
        why = "nothing found that oddrank can read" if item.size else EMPTY
        notes.add(item, why, lost=lost)
    if len(strange) > _MOST_STRANGE:
        notes.add(f"{len(strange) - _MOST_STRANGE} more files", "nothing found in them", lost=False)


def _is_core(item: Item) -> bool:
    """Returns whether a file holds the memory of a process, which may say anything."""
    return item.head.startswith(b"\x7fELF") and item.head[16:18] == b"\x04\0"
