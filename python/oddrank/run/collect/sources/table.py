"""All sources of evidence, a row each. Their shares of --limit sum up to 1."""

from oddrank.run.collect.sources import (
    Source,
    cgroups,
    environment,
    flight_recorder,
    kernel,
    nccl_ras,
    nvidia_smi,
    process,
    records,
    torchelastic,
)

SOURCES: tuple[Source, ...] = (
    process.SOURCE,
    records.SOURCE,
    nccl_ras.SOURCE,
    flight_recorder.SOURCE,
    nvidia_smi.SOURCE,
    kernel.SOURCE,
    cgroups.SOURCE,
    torchelastic.SOURCE,
    environment.SOURCE,
)
