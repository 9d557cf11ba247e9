"""Assigns Xid codes in the kernel's log to GPUs."""

import os
from threading import Thread

import pytest

from oddrank.selftest.gpus import HARDWARE, xids

LOG = """\
4,1,100,-;NVRM: Xid (PCI:0000:9b:00): 79, pid='<unknown>', GPU has fallen off the bus.
4,2,101,-;NVRM: Xid (PCI:0000:1B:00): 31, pid=77, name=python, Ch 00000008, intr 10000000.
4,3,102,-;NVRM: Xid (PCI:0000:9b:00): 31, pid=77, name=python
6,4,103,-;usb 1-1: new device \udcff
4,5,104,-;NVRM: Xid (PCI:0000:9b:00): 79, again
"""


@pytest.fixture
def log(tmp_path):
    file = tmp_path / "kmsg"
    file.write_text(LOG, encoding="utf-8", errors="surrogateescape")
    return str(file)


def test_codes_are_counted_for_the_gpu_that_they_are_of(log):
    assert xids("0000:9B:00.0", log) == {"79": 2, "31": 1}
    assert xids("0000:1b:00.0", log) == {"31": 1}
    assert xids("0000:3b:00.0", log) == {}


def test_a_log_that_may_not_be_read_is_said_so(tmp_path):
    assert xids("0000:9b:00.0", str(tmp_path / "none")) == "not readable: No such file or directory"


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
        os.write(writer, LOG.encode(errors="surrogateescape"))
        found = []
        reading = Thread(target=lambda: found.append(xids("0000:9b:00.0", str(path))), daemon=True)
        reading.start()
        reading.join(60)
        assert found == [{"79": 2, "31": 1}]
    finally:
        os.close(writer)


def test_this_machines_own_log_is_read_if_it_may_be():
    found = xids("0000:9b:00.0")
    if is_readable("/dev/kmsg"):
        assert isinstance(found, dict)
    else:
        assert found.startswith("not readable: ")


def is_readable(path):
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        os.read(descriptor, 1 << 16)
    except (BlockingIOError, BrokenPipeError):
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True
