"""`oddrank doctor`: shows built, loaded and missing parts, and install commands. Does not judge."""

import sys
from collections.abc import Iterator

import click

from oddrank import launch, render
from oddrank._native import minor_version, reinstall
from oddrank.cli import Seconds, json_option
from oddrank.doctor.probes import OPTIONAL, Facts, examine
from oddrank.errors import LaunchError, OddrankError
from oddrank.finding import size_text
from oddrank.machine.device import without_code
from oddrank.report import envelope, write_json

Row = tuple[str, str, str]  # part, state, details

_COLUMNS = ("part", "state", "")
_NO_ROCM = "AMD GPUs are not supported; oddrank's parts for the CPU work"
_FOR_GPUS = {"_cuda", "CUDA driver", "GPUs", "NCCL"}  # parts that only GPUs need


@click.command(name="doctor")
@json_option
@click.option("--deadline", "seconds", type=Seconds(0.1, 3600), default=60.0, show_default=True,
              metavar="SECONDS", help="Time limit for torch and the CUDA driver to answer (60,"
              " 60s or 5m).")  # fmt: skip
def command(json_path: str | None, seconds: float) -> int:
    """Show which parts are built and loaded, and how to install missing ones.

    \b
    Examples:
      oddrank doctor
      oddrank doctor --json doctor.json
      torchrun --nproc-per-node 8 -m oddrank doctor     as the job sees it

    In a job one rank of each node prints, and rank 0 writes the JSON.

    Exit codes: 0 _core works; 2 it does not. This command does not judge.
    """
    try:
        me = launch.current()
        world, speaks, writes = me.as_world(), me.local_rank == 0, me.rank == 0
    except LaunchError:  # shown as a row
        world, speaks, writes = {}, True, True
    if not speaks:
        return 0
    data = examine(seconds)
    try:
        if json_path is not None and writes:
            write_json(envelope("doctor", world, data), json_path)
    finally:
        stream = sys.stderr if json_path == "-" else sys.stdout
        render.table(_COLUMNS, rows(data), stream)
    return 0 if data["parts"]["_core"]["present"] else OddrankError.exit_code


def rows(data: Facts) -> Iterator[Row]:
    """Yields the rows of the table. The row of a missing part says why, and the command to type."""
    for part, state, text in _all_rows(data):
        if part in _FOR_GPUS and state in ("missing", "unknown") and not data["gpu_expected"]:
            yield part, "not needed", f"no GPU here; {text.partition('. ')[0]}"
        else:
            yield part, state, text


def _all_rows(data: Facts) -> Iterator[Row]:
    yield "oddrank", "ok", f"{data['oddrank']['version']} in {data['oddrank']['folder']}"
    if documents := data["oddrank"].get("documents"):
        yield "documents", "ok", f"SKILL.md, llms.txt, docs/ and examples/ in {documents}"
    yield "Python", "ok", f"{data['python']['version']}, {data['python']['executable']}"
    for name, part in data["parts"].items():
        yield _part_row(name, part)
    yield _torch_row(data["torch"])
    if (recorder := data["torch"].get("collectives")) is not None:
        how = f"recorded by {recorder}" if recorder else "not recorded: see _torch"
        how = "recorded by torch's own hooks, without _torch" if recorder == "hooks" else how
        yield "collectives", "ok" if recorder else "missing", how
    if rocm := data["torch"].get("rocm"):
        yield "ROCm", "missing", f"torch is built for ROCm {rocm}: {_NO_ROCM}"
    build = data["parts"]["_cuda"].get("build", {})
    yield from _cuda_rows(data["cuda"], build.get("architectures", ""))
    nccl = data["nccl"]
    if problem := nccl.get("problem"):
        yield "NCCL", "missing", problem
    else:
        yield "NCCL", "ok", f"{nccl['version_text']}, {nccl['path']} ({nccl['source']})"
    if warning := nccl.get("warning"):
        yield "NCCL", "warning", warning
    for name, use in OPTIONAL.items():
        here = data["packages"][name]
        yield name, "ok" if here else "missing", use if here else f"{use}. pip install {name}"
    yield from _launch_rows(data["launch"])
    lock, problem = data["files"]["lock"], data["files"]["problem"]
    place = f"{lock} is used" if lock else "lines of other processes may mix in"
    yield "lock file", "warning" if problem else "ok", f"{problem}; {place}" if problem else lock


def _part_row(name: str, part: Facts) -> Row:
    if not part["present"]:
        return name, "missing", f"{part['reason']}. {part['advice']}".rstrip(". ")
    build = part["build"]
    if newer := part.get("newer"):
        return name, "warning", f"{newer} has changed since it was built. Type: {reinstall()}"
    known = [f"{build['compiler']} {build['flags']}"]
    if "nvcc" in build:
        known += [build["nvcc"], f"nccl.h {build['nccl_header']}", f"sm {build['architectures']}"]
    if "torch" not in build:
        return name, "ok", ", ".join(known)
    known.append(f"for torch {build['torch']}")
    proven = build["proven"].split()
    known.append(f"proven with {', '.join(proven)}")
    if minor_version(build["torch"]) in proven:
        return name, "ok", ", ".join(known)
    return name, "warning", f"{', '.join(known)}: it compiles, but its tests have not run with it"


def _torch_row(torch: Facts) -> Row:
    known = torch.get("version", "")
    if torch.get("problem"):
        return "torch", "missing", ", ".join(filter(None, [known, torch["problem"]]))
    cuda = f"CUDA {torch['cuda']}" if torch["cuda"] else "CPU build"
    cuda = f"ROCm {torch['rocm']}" if torch.get("rocm") else cuda
    backends = " ".join(torch["backends"]) or "none"
    took = f"imported in {torch['import_seconds']} s"
    return "torch", "ok", f"{known}, {cuda}, backends {backends}, {took}, {torch['folder']}"


def _cuda_rows(cuda: Facts, architectures: str) -> Iterator[Row]:
    problem = cuda.get("problem", "")
    if "runtime" in cuda:
        yield "CUDA runtime", "ok", f"{_dotted(cuda['runtime'])}, inside _cuda"
        if cuda["driver"]:
            yield "CUDA driver", "ok", f"up to CUDA {_dotted(cuda['driver'])}"
        else:
            yield "CUDA driver", "missing", problem
            return
    if problem:
        yield "GPUs", "unknown", problem
        return
    if not cuda["gpus"]:
        yield "GPUs", "missing", "the driver sees none: check nvidia-smi -L, CUDA_VISIBLE_DEVICES"
    for gpu in cuda["gpus"]:
        major, minor = gpu["compute_capability"]
        memory = size_text(gpu["memory_bytes"])
        said = f"{gpu['name']}, {memory}, sm_{major}{minor}, {gpu['uuid']}, {gpu['pci_bus_id']}"
        why = without_code(gpu["name"], gpu["compute_capability"], architectures)
        if why:
            yield f"GPU {gpu['index']}", "unsupported", f"_cuda: {why}. {said}"
        else:
            yield f"GPU {gpu['index']}", "ok", said


def _launch_rows(me: Facts) -> Iterator[Row]:
    if "problem" in me:
        yield "launcher", "wrong", me["problem"]
        return
    node = "" if me["node"] is None else f", node {me['node']} of {me['nodes']}"
    where = f"rank {me['rank']} of {me['world']}{node} ({me['host']})"
    stray = f"; {me['stray']} says nothing without RANK" if me["stray"] else ""
    yield "launcher", "ok", f"{me['launcher']}, {where}{stray}"
    if me["folder_problem"]:
        advice = "set ODDRANK_DIR to a folder that you can write to"
        why = f"{me['folder']} can't be made ({me['folder_problem']}): {advice}"
        yield "job folder", "wrong", why
    else:
        yield "job folder", "ok", me["folder"]


def _dotted(version: list[int]) -> str:
    return ".".join(map(str, version))
