"""The stages of the self-test, in their order: one file and one row each."""

from oddrank.selftest.choice import Row
from oddrank.selftest.stages import all_reduce, barrier, device, environment, localise

TABLE = (
    Row(environment.stage, always=True),
    Row(device.stage),
    Row(all_reduce.stage),
    Row(localise.stage),
    Row(barrier.stage),
)
