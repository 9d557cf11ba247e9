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


@dataclass(frozen=True)
class _Row:
    """A value that tells of a fault. path: its name, and sections above it (regular expressions).

    well: values of healthy GPUs. text: {} is the value.
    """

    kind: str
    path: tuple[str, ...]
    well: str
    text: str
    fatal: bool = False


_NONE = r"None|N/A|\[?N/A\]?|Unknown|"
_ROWS = (
    _Row("gpu", (r"GPU Recovery Action",), _NONE, "it asks to be recovered: {}", True),
    _Row("ecc", (r"Volatile", r".*Uncorrectable.*"), r"0|N/A|", "{} uncorrectable memory errors",
         True),
    _Row("ecc", (r"Volatile", r"Double Bit", r"Total"), r"0|N/A|", "{} double-bit memory errors",
         True),
    _Row("gpu", (r"Remapped Rows", r"Remapping Failure Occurred"), r"No|N/A|",
         "a bad row of memory could not be replaced", True),
    _Row("ecc", (r"Remapped Rows", r"Pending"), r"No|N/A|",
         "a bad row of memory will be replaced at the next reset"),
    _Row("ecc", (r"Retired Pages", r"Pending.*"), r"No|N/A|",
         "a bad page of memory will be retired at the next reset"),
    _Row("power", (r"Clocks .* Reasons", r".*", r"HW Power Brake Slowdown"), r"Not Active|N/A|",
         "it slows down: power brake"),
    _Row("thermal", (r"Clocks .* Reasons", r".*", r"HW Thermal Slowdown"), r"Not Active|N/A|",
         "it slows down: heat"),
    _Row("thermal", (r"Clocks .* Reasons", r"SW Thermal Slowdown"), r"Not Active|N/A|",
         "it slows down: heat (driver)"),
    _Row("thermal", (r"Clocks .* Reasons", r"HW Slowdown"), r"Not Active|N/A|",
         "it slows down: hardware slowdown"),
    _Row("nvlink", (r"Fabric", r"State"), r"Completed|Not Supported|N/A|",
         "it has not joined the NVLink fabric: {}", True),
    _Row("nvlink", (r"Fabric", r"Status"), r"Success|N/A|",
         "it could not join the NVLink fabric: {}", True),
    _Row("nvlink", (r"Fabric", r"Health", r"Bandwidth"), r"Full|N/A|",
         "its NVLink bandwidth is {}"),
    _Row("gpu", (r"Product Name",), r"(?!.*(?:ERR!|Unknown Error|GPU is lost)).*", "it reads {}",
         True),
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
    path = [section for _, section in above]
    if len(above) < _DEEPEST:
        above.append((indent, text.strip() if found is None else found[2].strip()))
    if found is None:
        return
    own, value = found[2].strip(), found[3].strip()
    if own == "Process ID" and value.isdecimal():
        yield Identity(Process(pid=int(value[:18])), source, gpu.slot, gpu.index)
    for row in _ROWS:
        if _fits(row.path, [*path, own]) and not re.fullmatch(row.well, value):
            yield _trouble(row.kind, row.text.format(value[:100]), gpu, source, row.fatal)
            return


def _trouble(kind: str, text: str, gpu: _Gpu, source: Source, fatal: bool) -> Trouble:
    return Trouble(
        kind, text[:200], source, None, f"GPU {gpu.slot}", fatal=fatal, time=gpu.when,
        last=gpu.when, coarse=True,
    )  # fmt: skip


def _fits(wanted: Sequence[str], path: Sequence[str]) -> bool:
    """Returns whether the last parts of a path are the wanted ones; .* stands for one or none."""
    if len(wanted) == 3 and wanted[1] == ".*" and len(path) >= 2:
        return _fits((wanted[0], wanted[2]), path) or _fits((wanted[0], r"[^:]*", wanted[2]), path)
    tail = path[-len(wanted) :]
    return len(tail) == len(wanted) and all(
        re.fullmatch(pattern, part) for pattern, part in zip(wanted, tail, strict=True)
    )


def _tells(line: str) -> bool:
    return "NVSMI LOG" in line or _LOST.search(line) is not None


KIND = Kind("nvidia-smi", False, lambda item: any_tells(item, _WORDS, _tells), _read)
