"""`oddrank replicas`: which of several checkpoints differs."""

import click

from oddrank import render
from oddrank.cli import CommandGroup, fail_on_option, json_option
from oddrank.errors import OddrankError
from oddrank.replicas import checkpoints, compare

_EXAMPLES = """Compare checkpoints tensor by tensor, bit by bit.

\b
PATHs are files of safetensors or torch.save, folders of these or of
torch.distributed.checkpoint.

\b
Examples:
  oddrank replicas compare step4000/ /backup/step4000/
  oddrank replicas compare rank*.pt

Exit codes: 0 healthy; 1 odd or unknown; 2 not readable; 3 incomplete.
"""


@click.group(cls=CommandGroup, help=_EXAMPLES)
def command() -> None: ...


@command.command("compare")
@click.argument("paths", nargs=-1, required=True, metavar="PATH PATH...")
@json_option
@fail_on_option
def compare_(paths: tuple[str, ...], json_path: str | None, fail_on: frozenset[str]) -> int:
    """Name the tensors that differ and, with three or more PATHs, the odd one."""
    if len(paths) < 2:
        raise click.UsageError("give two or more PATHs to compare")
    try:
        import torch  # noqa: F401
    except (ImportError, OSError) as error:
        raise OddrankError(f"torch can't be imported ({error}): pip install torch") from error
    made = compare.report([checkpoints.read(path) for path in paths])
    render.deliver(made, json_path)
    return made.exit_code(fail_on)
