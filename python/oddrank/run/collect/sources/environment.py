"""Writes down the node's memory, versions and load, and the ranks' variables of the white list."""

import json
import os
import platform
import time

from oddrank._version import __version__
from oddrank.machine import settings, small_file
from oddrank.run.collect.sources import Sink, Source, Target
from oddrank.run.collect.sources.places import SHOWN, chosen

SCHEMA = "oddrank.environment/1"


def _work(target: Target, _: object, sink: Sink) -> None:
    sink.at("/proc")
    memory = (line.partition(":") for line in small_file("/proc/meminfo").splitlines())
    data = {
        "schema": SCHEMA,
        "host": target.host,
        "time": time.time(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "oddrank": __version__,
        "driver": settings.driver(),
        "uptime": small_file("/proc/uptime"),
        "load": small_file("/proc/loadavg"),
        "boot_id": small_file("/proc/sys/kernel/random/boot_id"),
        "memory": {name: value.strip() for name, _, value in memory},
        "pressure": {
            name: small_file(f"/proc/pressure/{name}") for name in ("cpu", "io", "memory")
        },
        "shm": _space("/dev/shm"),
        "ranks": {str(rank.rank): chosen(rank.environ, SHOWN) for rank in target.ranks},
    }
    sink.put("environment.json", json.dumps(data).encode())
    for rank in target.living:
        if not rank.environ:
            sink.lacks(f"/proc/{rank.pid}/environ", "its variables were not readable")


def _space(folder: str) -> dict[str, int]:
    try:
        found = os.statvfs(folder)
    except OSError:
        return {}
    return {"bytes": found.f_blocks * found.f_frsize, "free": found.f_bavail * found.f_frsize}


SOURCE = Source("environment", 5.0, 0.01, _work)
