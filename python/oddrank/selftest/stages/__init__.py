"""The stages of the self-test, in their order: one file and one row each."""

from oddrank.selftest.stages import all_reduce, barrier, device, environment, localise

STAGES = (
    environment.STAGE,
    device.STAGE,
    all_reduce.STAGE,
    localise.STAGE,
    barrier.STAGE,
)
