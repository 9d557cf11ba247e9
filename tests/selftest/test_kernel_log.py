"""Assigns Xid codes in the kernel's log to GPUs, and SXid codes to NVSwitches."""

import os
from threading import Thread

import pytest

from oddrank.machine.xid import HARDWARE
from oddrank.selftest.gpus import sxids, xids

LOG = """\
4,1,100,-;NVRM: Xid (PCI:0000:9b:00): 79, pid='<unknown>', GPU has fallen off the bus.
4,2,101,-;NVRM: Xid (PCI:0000:1B:00): 31, pid=77, name=python, Ch 00000008, intr 10000000.
4,3,102,-;NVRM: Xid (PCI:0000:9b:00): 31, pid=77, name=python
6,4,103,-;usb 1-1: new device \udcff
4,5,104,-;NVRM: Xid (PCI:0000:9b:00): 79, again
"""


# Lines of drivers 570 and 580 on Blackwell.
BLACKWELL = """\
4,1,9,-;NVRM: Xid (PCI:0009:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x021425c6 0x0 0x0)
4,2,9,-;NVRM: Xid (PCI:0009:01:00): 145, RLW_REMAP Nonfatal XC0 i0 Link 02 (0x00000004 0x00000001)
4,3,9,-;NVRM: Xid (PCI:0009:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU \
Reset Required)
4,4,9,-;NVRM: Xid (PCI:0009:01:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) \
to 0x0 (None)
4,5,9,-;NVRM: Xid (PCI:0009:01:00): 110, pid=2077, name=python, Security Fault Error
4,6,9,-;NVRM: Xid (PCI:0009:01:00): 144, pid=77, name=python, SAW_MVB Fatal XC0 i0 Link 00 (0x01)
"""

# Lines of the NVSwitches' driver on HGX A100 and H100.
SWITCHES = """\
4,1,8,-;nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Non-fatal, Link 46 MC TS crumbstore MCTO
4,2,8,-;nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Severity 0 Engine instance 46 Sub-engine \
instance 00
4,3,8,-;nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Data {0x00140004, 0x00100000, 0x00140004}
2,4,8,-;nvidia-nvswitch0: SXid (PCI:0000:C3:00.0): 24007, Fatal, Link 30 sourcetrack timeout error
2,5,8,-;nvidia-nvswitch0: SXid (PCI:0000:C3:00.0): 24007, Severity 1 Engine instance 30 Sub-engine \
instance 00
2,6,8,-;nvidia-nvswitch0: SXid (PCI:0000:C3:00.0): 24007, Fatal, Link 31 sourcetrack timeout error
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


def test_errors_of_nvlink_5_count_if_they_are_fatal_and_a_recovery_until_it_has_ended(tmp_path):
    file = tmp_path / "kmsg"
    file.write_text(BLACKWELL, encoding="utf-8")
    assert xids("0009:01:00.0", str(file)) == {"149": 1, "154": 1, "110": 1, "144": 1}
    assert {110, *range(144, 151), 154} <= set(HARDWARE)


def test_fatal_errors_are_counted_for_each_switch(tmp_path):
    file = tmp_path / "kmsg"
    file.write_text(SWITCHES, encoding="utf-8")
    assert sxids(str(file)) == {"0000:c3:00.0": {"24007": 2}}
    assert sxids(str(tmp_path / "none")) == "not readable: No such file or directory"
    assert xids("0000:c3:00.0", str(file)) == {}


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
