"""Wrong wall clocks: each node has one vote; of two nodes neither is named."""

import ctypes
import time
from types import SimpleNamespace

import pytest

from findings_shown import check
from job import job
from made_up import run_by_node
from netns import network
from oddrank.selftest import Options
from oddrank.selftest.stages import clock

NOW = 1_790_000_000_000_000_000
KERNEL = {"synchronised": True, "rate_ppm": -12.5, "error_us": 40, "most_us": 900}


def judged(*ahead, error=0.001, **changes):
    """Returns the findings. ahead: seconds of each node's clock; None if it could not be read."""
    measured = [
        {"unread": "no answer"} if seconds is None else
        {"epoch_ns": NOW + int(seconds * 1e9), "error_ns": int(error * 1e9), "kernel": KERNEL}
        for seconds in ahead
    ]  # fmt: skip
    return clock.stage(Options()).conclude(run_by_node("clock", measured, **changes))


SAID = {
    "ahead": (judged(0, 0, 4.2), "suspicious wrong-clock: node 4-5"),
    "behind": (judged(0, 0, -4.2), "suspicious wrong-clock: node 4-5"),
    "two, the worst first": (
        judged(0, 3, 0, -700, 0, 0), "suspicious wrong-clock: node 6-7, node 2-3"
    ),
    "of two nodes": (judged(0, 4.2), "unknown clocks-disagree: nobody"),
    "of two that could be read": (judged(0, 5, None), "unknown clocks-disagree: nobody"),
    "two of four": (judged(0, 0, 5, 5), "unknown clocks-disagree: nobody"),
    "three clocks": (judged(0, 5, 10), "unknown clocks-disagree: nobody"),
    "two of four agree": (judged(0, 0, 5, 10), "unknown clocks-disagree: nobody"),
}  # fmt: skip
HEALTHY = {
    "near": judged(0, 0.01, -0.3, 0.2),
    "two": judged(0, 0.01),
    "not known well enough": judged(0, 0, 1.5, error=0.4),
    "could not be read": judged(0, 0, None),
}


def test_a_wrong_clock_is_named_where_most_nodes_agree(golden):
    check(SAID, golden)
    check({name: (found, "") for name, found in HEALTHY.items()})


def test_ten_thousand_clocks_are_judged_in_one_pass():
    found = judged(*(9.0 if node % 100 == 7 else 0.001 for node in range(10_000)), per_node=1)
    assert len(found) == 100


class Timex(ctypes.Structure):
    """The first fields of the kernel's struct timex."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
    )


@pytest.mark.parametrize(("status", "synchronised"), [(0x2001, True), (0x2041, False)])
def test_the_kernels_word_is_that_of_adjtimex(monkeypatch, status, synchronised):
    def adjtimex(buffer):
        given = Timex(0, 7, int(-12.5 * 65536), 900, 40, status)
        ctypes.memmove(buffer, ctypes.byref(given), ctypes.sizeof(given))
        return 0

    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace(adjtimex=adjtimex))
    assert clock._kernels_word() == KERNEL | {"synchronised": synchronised}


def test_where_a_container_forbids_to_ask_there_is_no_kernels_word(monkeypatch):
    refused = SimpleNamespace(adjtimex=lambda buffer: -1)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: refused)
    assert clock._kernels_word() is None


def test_this_kernels_word_is_read_if_it_may_be():
    may = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(512)) >= 0
    word = clock._kernels_word()
    assert (word is not None) == may
    assert not may or (word["most_us"] >= 0 and abs(word["rate_ppm"]) <= 500)


def test_the_wall_clock_is_that_of_the_middle_of_the_two_readings_around_it(monkeypatch):
    monotonic = iter([1_000, 1_400])
    clocks = SimpleNamespace(monotonic_ns=lambda: next(monotonic), time_ns=lambda: NOW + 1_200)
    monkeypatch.setattr(clock, "time", clocks)
    assert clock._read_both() == (NOW, 400)


@pytest.mark.needs("torch", "netns")
def test_a_wrong_clock_is_named_among_real_nodes():
    wrong = time.time_ns() - time.monotonic_ns() - 4_200_000_000
    with network(3) as net:
        verdict = job(
            3, 3, hosts=net.hosts, deadline=90, command=("selftest", "--only", "clock"),
            inject=f"set:rank=1,stage=clock,name=epoch_ns,value={wrong}",
        )  # fmt: skip
    assert verdict.causes == {"wrong-clock"}, str(verdict)
    assert verdict.names(rank=1, stage="clock")
    assert "4.2 s behind" in verdict.report["summary"]
