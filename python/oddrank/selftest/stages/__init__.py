"""The stages of the self-test, in their order. A stage and its recheck share a file."""

from oddrank.selftest.choice import Row
from oddrank.selftest.metrics import SPEED
from oddrank.selftest.stages import (
    clock,
    collectives,
    connect,
    counters,
    device,
    environment,
    file_system,
    fingerprint,
    health,
    links,
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
    Row(reach.recheck),
    Row(file_system.stage),
    Row(health.stage, also_for=(SPEED,)),
    Row(device.stage),
    Row(speed.stage),
    Row(fingerprint.stage),
    Row(speed.recheck),
    Row(connect.stage, needed_by=(links.NAME, collectives.NAME, train.NAME)),
    Row(links.stage),
    Row(links.recheck),
    Row(collectives.stage),
    Row(collectives.localise),
    Row(train.stage),
    Row(counters.recheck, needed_by=("counters",)),
)
