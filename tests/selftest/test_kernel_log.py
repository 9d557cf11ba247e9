"""Assigns Xid codes in the kernel's log to GPUs, and SXid codes to NVSwitches."""

import errno
import os
from pathlib import Path
from threading import Thread

import pytest

from oddrank.machine.xid import HARDWARE
from oddrank.selftest.gpus import sxids, xids
from patience import PATIENCE

DATA = Path(__file__).parent / "data"
LOG, ABSENT = str(DATA / "kernel_log.txt"), str(DATA / "absent.txt")
NOT_READABLE = "not readable: No such file or directory"


def test_codes_are_counted_for_the_gpu_that_they_are_of():
    for pci, found in {
        "0000:9B:00.0": {"79": 2, "31": 1}, "0000:1b:00.0": {"31": 1}, "0000:3b:00.0": {}
    }.items():  # fmt: skip
        assert xids(pci, LOG) == found, pci
    assert (xids("0000:9b:00.0", ABSENT), sxids(ABSENT)) == (NOT_READABLE, NOT_READABLE)


def test_errors_of_nvlink_5_count_if_they_are_fatal_and_a_recovery_until_it_has_ended():
    """The lines are of drivers 570 and 580."""
    found = xids("0009:01:00.0", str(DATA / "blackwell.txt"))
    assert found == {"149": 1, "154": 1, "110": 1, "144": 1}
    assert {110, *range(144, 151), 154} <= set(HARDWARE)


def test_fatal_errors_are_counted_for_each_switch():
    """The lines are of the NVSwitches' driver on HGX A100 and H100."""
    file = str(DATA / "nvswitch.txt")
    assert sxids(file) == {"0000:c3:00.0": {"24007": 2}}
    assert xids("0000:c3:00.0", file) == {}


@pytest.mark.needs("samples")
def test_the_codes_of_a_real_log_are_found(samples):
    (file,) = samples.glob("kernel_logs/*xid*.log")
    assert xids("0000:9b:00.0", str(file))["119"] >= 5
    assert 119 in HARDWARE


def test_a_log_that_goes_on_is_read_without_waiting_for_more(tmp_path):
    """A pipe with a writer is as the kernel's log: a read at its end waits for the next record."""
    path = tmp_path / "kmsg"
    os.mkfifo(path)
    writer = os.open(path, os.O_RDWR)
    try:
        os.write(writer, Path(LOG).read_bytes())
        found = []
        reading = Thread(target=lambda: found.append(xids("0000:9b:00.0", str(path))), daemon=True)
        reading.start()
        reading.join(PATIENCE.limit)
        assert found == [{"79": 2, "31": 1}]
    finally:
        os.close(writer)


def test_this_machines_own_log_is_read_if_it_may_be():
    try:
        descriptor = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
        with open(descriptor, "rb", buffering=0) as file:
            file.read(1 << 16)  # None if there is nothing
        may = True
    except OSError as error:
        may = error.errno == errno.EPIPE  # lines were lost meanwhile
    assert isinstance(xids("0000:9b:00.0"), dict if may else str)
