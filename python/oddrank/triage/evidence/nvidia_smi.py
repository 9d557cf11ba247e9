"""Reads `nvidia-smi -q`: faults of GPUs now, and which process uses which GPU.

Volatile errors count, since the driver was loaded; Aggregate ones are the GPU's whole life. Power
is not judged: it tells only beside the same GPU's power in health.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from oddrank.inputs import Item, Notes
from oddrank.machine.xid import pci_slot
from oddrank.triage.evidence import Kind, time_in
from oddrank.triage.evidence.lines import any_tells, words
from oddrank.triage.facts import Fact, Identity, Process, Source, Trouble

_WORDS = words("NVSMI LOG", "Unable to determine the device handle", "GPU is lost")
_MOST = 64 << 20
_GPU = re.compile(r"GPU ([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.\d)\s*$")
_LOST = re.compile(
    r"(?:Unable to determine the device handle for )?(?:GPU ?\d*:? ?)?"
    r"([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})\.\d: "
    r"(?P<why>.*(?:GPU is lost|Unknown Error|GPU requires reset)[^\n]*)"
)
_PAIR = re.compile(r"( *)(\S[^:]*?) *: ?(.*)$")
_DEEPEST = 8


@dataclass(frozen=True)
class _Gpu:
    """The GPU whose section is read, and when nvidia-smi asked it."""

    slot: str = ""
    index: int = -1
    when: float | None = None


# Signs of a fault: kind, the end of the path of a value (sections above it, its name), values of
# healthy GPUs, the sentence ({} is the value), and whether jobs do not survive it.
_ROWS = tuple(
    (kind, re.compile(f"/(?:{path})$"), re.compile(well), text, fatal)
    for kind, path, well, text, fatal in (
        ("gpu", "GPU Recovery Action", r"None|N/A|\[?N/A\]?|Unknown|",
         "it asks to be recovered: {}", True),
        ("ecc", "Volatile/[^/]*Uncorrectable[^/]*", "0|N/A|", "{} uncorrectable memory errors",
         True),
        ("ecc", "Volatile/Double Bit/Total", "0|N/A|", "{} double-bit memory errors", True),
        ("gpu", "Remapped Rows/Remapping Failure Occurred", "No|N/A|",
         "a bad row of memory could not be replaced", True),
        ("ecc", "Remapped Rows/Pending", "No|N/A|",
         "a bad row of memory will be replaced at the next reset", False),
        ("ecc", "Retired Pages/Pending[^/]*", "No|N/A|",
         "a bad page of memory will be retired at the next reset", False),
        ("power", "Clocks [^/]* Reasons/(?:[^/]*/)?HW Power Brake Slowdown", "Not Active|N/A|",
         "it slows down: power brake", False),
        ("thermal", "Clocks [^/]* Reasons/(?:[^/]*/)?HW Thermal Slowdown", "Not Active|N/A|",
         "it slows down: heat", False),
        ("thermal", "Clocks [^/]* Reasons/SW Thermal Slowdown", "Not Active|N/A|",
         "it slows down: heat (driver)", False),
        ("thermal", "Clocks [^/]* Reasons/HW Slowdown", "Not Active|N/A|",
         "it slows down: hardware slowdown", False),
        ("nvlink", "Fabric/State", "Completed|Not Supported|N/A|",
         "it has not joined the NVLink fabric: {}", True),
        ("nvlink", "Fabric/Status", "Success|N/A|",
         "it could not join the NVLink fabric: {}", True),
        ("nvlink", "Fabric/Health/Bandwidth", "Full|N/A|", "its NVLink bandwidth is {}", False),
        ("gpu", "Product Name", "(?!.*(?:ERR!|Unknown Error|GPU is lost)).*", "it reads {}", True),
    )
)  # fmt: skip


def _read(items: Sequence[Item], notes: Notes) -> Iterable[Fact]:
    for item in items:
        if item.size > _MOST:
            notes.add(item, f"output of nvidia-smi in a file over {_MOST >> 20} MiB is not read")
            continue
        try:
            with open(item.path, encoding="utf-8", errors="replace", newline="\n") as file:
                yield from _facts(item.name, file)
        except OSError as error:
            notes.add(item, f"not readable: {error.strerror}")


def _facts(name: str, lines: Iterable[str]) -> Iterator[Fact]:
    gpu = _Gpu()
    above: list[tuple[int, str]] = []
    for number, line in enumerate(lines, 1):
        text = line.rstrip()
        source = Source(name, number)
        if "NVSMI LOG" in text:
            gpu, above = _Gpu(), []
        elif found := _LOST.search(text):
            lost = replace(gpu, slot=pci_slot(found[1]))
            yield _trouble("gpu", f"nvidia-smi says: {found['why'].strip()}", lost, source, True)
        elif found := _GPU.match(text):
            gpu, above = replace(gpu, slot=pci_slot(found[1]), index=gpu.index + 1), []
        elif text.startswith("Timestamp"):
            gpu = replace(gpu, when=time_in(text)[0])
        elif gpu.slot and text.startswith(" "):
            yield from _value(text, above, gpu, source)


def _value(text: str, above: list[tuple[int, str]], gpu: _Gpu, source: Source) -> Iterator[Fact]:
    """Takes one line of a GPU. above: the sections that it stands in, with their indentation."""
    found = _PAIR.match(text)
    indent = len(text) - len(text.lstrip())
    while above and above[-1][0] >= indent:
        above.pop()
    path = "/".join(section for _, section in above)
    if len(above) < _DEEPEST:
        above.append((indent, text.strip() if found is None else found[2].strip()))
    if found is None:
        return
    own, value = found[2].strip(), found[3].strip()
    if own == "Process ID" and value.isdecimal():
        yield Identity(Process(pid=int(value[:18])), source, gpu.slot, gpu.index)
    for kind, shape, well, told, fatal in _ROWS:
        if shape.search(f"/{path}/{own}") and not well.fullmatch(value):
            yield _trouble(kind, told.format(value[:100]), gpu, source, fatal)
            return


def _trouble(kind: str, text: str, gpu: _Gpu, source: Source, fatal: bool) -> Trouble:
    return Trouble(
        kind, text[:200], source, None, f"GPU {gpu.slot}", fatal=fatal, time=gpu.when,
        last=gpu.when, coarse=True,
    )  # fmt: skip


KIND = Kind("nvidia-smi", False, lambda item: any_tells(
    item, _WORDS, lambda line: "NVSMI LOG" in line or _LOST.search(line) is not None
), _read)  # fmt: skip
