"""The stages of the self-test, in their order: one file and one row each."""

from oddrank.control import join
from oddrank.selftest.stages import all_reduce, barrier, device, environment, localise

STAGES = (
    join.STAGE,
    environment.STAGE,
    device.STAGE,
    all_reduce.STAGE,
    localise.STAGE,
    barrier.STAGE,
)
