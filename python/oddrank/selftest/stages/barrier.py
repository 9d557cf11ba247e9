"""All ranks meet once more: the last collective of a healthy run."""

from oddrank.bench.group import connect
from oddrank.control.stages import Context, Stage
from oddrank.selftest import device
from oddrank.selftest.choice import Options


def _measure(context: Context) -> None:
    connect(context, context.parameters).barrier()


def stage(options: Options) -> Stage:
    return Stage("barrier", 60, _measure, plan=device.backend)
