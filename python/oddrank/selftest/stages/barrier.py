"""All ranks meet once more: the last collective of a healthy run."""

from oddrank.bench.group import connect
from oddrank.control.stages import Context, Stage
from oddrank.selftest import device


def _measure(context: Context) -> None:
    connect(context, context.parameters).barrier()


STAGE = Stage("barrier", 60, _measure, plan=device.backend)
