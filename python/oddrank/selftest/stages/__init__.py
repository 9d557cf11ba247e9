"""The stages of the self-test, in their order: one file and one row each."""

from oddrank.selftest.choice import Row
from oddrank.selftest.metrics import SPEED
from oddrank.selftest.stages import (
    again,
    clock,
    collectives,
    connect,
    counters,
    counters_again,
    device,
    environment,
    file_system,
    fingerprint,
    health,
    links,
    localise,
    reach,
    speed,
    train,
)

TABLE = (
    Row(environment.stage, always=True),
    Row(counters.stage),
    Row(clock.stage),
    Row(reach.listen, needed_by=("reach",)),
    Row(reach.stage),
    Row(reach.again),
    Row(file_system.stage),
    Row(health.stage, also_for=(SPEED,)),
    Row(device.stage),
    Row(speed.stage),
    Row(fingerprint.stage),
    Row(again.stage),
    Row(connect.stage, needed_by=(links.NAME, collectives.NAME, train.NAME)),
    Row(links.stage),
    Row(links.stage_again),
    Row(collectives.stage),
    Row(localise.stage),
    Row(train.stage),
    Row(counters_again.stage, needed_by=("counters",)),
)
