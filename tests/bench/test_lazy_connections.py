"""Ranks connect to the few others that they talk to, not to all of them."""

import re
from dataclasses import replace

import pytest

from job import job
from launchers import env

# Runs the command; each rank prints how many connections it has to other ranks' gloo.
COUNTING = r"""
import os, sys
from oddrank import cli, process_group

def connections():
    # gloo listens on a port of its own in each rank; both ends of a connection know one of them.
    fds = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
           if os.path.islink(f"/proc/self/fd/{fd}")]
    inodes = {link[8:-1] for link in fds if link.startswith("socket:[")}
    with open("/proc/self/net/tcp") as file:
        lines = [line.split() for line in file][1:]
    return sum(fields[9] in inodes and fields[3] == "01" for fields in lines)

made = process_group.Group.__init__
def make(self, *arguments):
    before = connections()
    made(self, *arguments)
    self.smallest([1.0])  # a ring
    # A line in one write: where Python does not buffer, print() writes each argument by itself.
    print(f"connections: {connections() - before}\n", end="", flush=True)
process_group.Group.__init__ = make
sys.argv[0] = "oddrank"
cli.main()
"""


def counting(order):
    return env(replace(order, tool=["-c", COUNTING, *order.tool[2:]]))


@pytest.mark.needs("torch")
def test_six_ranks_connect_each_to_their_neighbours():
    command = ("bench", "run", "--sizes", "8", "--budget", "2", "--precision", "100%")
    verdict = job(6, command=command, launcher=counting, deadline=60)
    assert verdict.healthy(), str(verdict)
    seen = [int(number) for number in re.findall(r"connections: (\d+)", verdict.output)]
    assert len(seen) == 6
    assert max(seen) < 5, seen
