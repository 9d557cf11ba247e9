"""The stages of the self-test, in their order. A stage and its recheck share a file."""

from oddrank.selftest.choice import StageRow
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
    StageRow(environment.stage, always=True),
    StageRow(counters.stage),
    StageRow(clock.stage),
    StageRow(reach.listen, needed_by=("reach",)),
    StageRow(reach.stage),
    StageRow(reach.recheck),
    StageRow(file_system.stage),
    StageRow(health.stage, also_for=(SPEED,)),
    StageRow(device.stage),
    StageRow(speed.stage),
    StageRow(fingerprint.stage),
    StageRow(speed.recheck),
    StageRow(connect.stage, needed_by=(links.NAME, collectives.NAME, train.NAME)),
    StageRow(links.stage),
    StageRow(links.recheck),
    StageRow(collectives.stage),
    StageRow(collectives.localise),
    StageRow(train.stage),
    StageRow(counters.recheck, needed_by=("counters",)),
)
