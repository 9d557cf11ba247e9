"""`oddrank replicas`: digests of saved tensors, and which of several checkpoints differs."""

import sys

import click

from oddrank import render
from oddrank.cli import CommandGroup, fail_on_option, json_option
from oddrank.errors import OddrankError
from oddrank.replicas import checkpoints, compare
from oddrank.report import envelope, write_json

_EXAMPLES = """Compare checkpoints tensor by tensor, bit by bit.

\b
PATHs are files of safetensors or torch.save, folders of these or of
torch.distributed.checkpoint, JSON of `dump`, and files of replicas.trace().

\b
  oddrank replicas dump step4000/ --json step4000.json
  oddrank replicas compare step4000.json /backup/step4000/
  oddrank replicas compare rank*.pt
"""


def _fraction(context: click.Context, option: click.Parameter, value: float) -> float:
    if not 0 <= value < 1:  # so is no NaN
        raise click.BadParameter(f"{value} is not a fraction like 1e-5")
    return value


@click.group(cls=CommandGroup, help=_EXAMPLES)
def command() -> None: ...


@command.command()
@click.argument("path")
@json_option
def dump(path: str, json_path: str | None) -> None:
    """Print a digest of 128 bits for each tensor of PATH."""
    _need_torch()
    found = checkpoints.read(path)
    if json_path is not None:
        write_json(envelope("replicas dump", {}, found.as_json()), json_path)
    if json_path != "-":
        rows = [
            (name, one.dtype, str(list(one.shape)), one.digest)
            for name, one in found.tensors.items()
        ]
        render.table(("tensor", "type", "shape", "digest"), rows, sys.stdout)
    for name, why in found.skipped.items():
        render.line(f"oddrank: {name} is left out: {why}", sys.stderr)


@command.command("compare")
@click.argument("paths", nargs=-1, required=True, metavar="PATH PATH...")
@click.option(
    "--within",
    metavar="FRACTION",
    default=0.0,
    callback=_fraction,
    help="Floats as near as this fraction of their tensor's largest value are the same: 1e-5 for"
    " float32 on a CPU and a GPU. Needs values, not only digests. Default: the bits are the same.",
)
@json_option
@fail_on_option
def compare_(
    paths: tuple[str, ...], within: float, json_path: str | None, fail_on: frozenset[str]
) -> int:
    """Name the tensors that differ and, of three or more PATHs, the odd one."""
    if len(paths) < 2:
        raise click.UsageError("give two or more PATHs to compare")
    _need_torch()
    made = compare.report([checkpoints.read(path) for path in paths], within)
    render.deliver(made, json_path)
    return made.exit_code(fail_on)


def _need_torch() -> None:
    try:
        import torch  # noqa: F401
    except (ImportError, OSError) as error:
        raise OddrankError(f"torch can't be imported ({error}): pip install torch") from error
