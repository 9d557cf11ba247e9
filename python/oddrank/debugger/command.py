"""`oddrank attach`: the terminal of a rank that waits in oddrank.breakpoint()."""

import os
import select
import socket
import sys
import time
from contextlib import suppress

import click

from oddrank.cli import Seconds
from oddrank.debugger import channel
from oddrank.errors import OddrankError

_LOOK_SECONDS = 0.2
_HINT = "\n(q or Ctrl-D lets the rank go on; Ctrl-C again does, too)\n"


@click.command()
@click.argument("rank", required=False, metavar="[RANK]", type=int)
@click.option("--pid", type=click.IntRange(min=1), metavar="PID",
              help="Choose this process of the rank.")  # fmt: skip
@click.option("--wait", type=Seconds(0, 7 * 86400), default=0.0, show_default=True,
              metavar="SECONDS",
              help="Time to wait for a rank to come to a breakpoint.")  # fmt: skip
def command(rank: int | None, pid: int | None, wait: float) -> int:
    """Debug a rank that waits in oddrank.breakpoint(), with pdb's commands.

    \b
    Examples:
      oddrank attach 3
      srun --overlap --pty --jobid 4711 -w node7 oddrank attach 3
      kubectl exec -it worker-7 -- oddrank attach 3

    Run it on the rank's host, as the same user. However this command ends, the rank goes on.
    """
    end = time.monotonic() + wait
    while True:
        found = [
            one for one in channel.sessions() if rank in (None, one.rank) and pid in (None, one.pid)
        ]
        if found or time.monotonic() >= end:
            break
        time.sleep(_LOOK_SECONDS)
    if not found:
        which = "no process" if rank is None else f"no process of rank {rank}"
        raise OddrankError(
            f"{which} of yours waits for a debugger on {os.uname().nodename}: run this on the"
            " rank's host, or wait for it with --wait 10m"
        )
    if len(found) > 1:
        named = "; ".join(f"rank {one.rank}, --pid {one.pid}" for one in found[:8])
        raise OddrankError(f"{len(found)} processes wait for a debugger: choose one: {named}")
    try:
        stream = found[0].connect()
    except OSError as error:
        raise OddrankError(
            f"rank {found[0].rank} does not answer ({error.strerror or error}): it has gone on"
        ) from error
    _talk(stream)
    return 0


def _talk(rank: socket.socket) -> None:
    """Passes lines to and fro until either side ends. The terminal stays in its own mode."""
    waiter = select.poll()
    waiter.register(rank, select.POLLIN)
    waiter.register(0, select.POLLIN)
    warned = False
    with rank:
        while True:
            try:
                if not _pass_on(rank, waiter):
                    return
            except KeyboardInterrupt:
                if warned:
                    return
                warned = True
                _show(_HINT)


def _pass_on(rank: socket.socket, waiter: "select.poll") -> bool:
    """Passes on the available text; returns False at the end."""
    for descriptor, _ in waiter.poll():
        if descriptor == rank.fileno():
            text = b""
            with suppress(OSError):
                text = rank.recv(65536)
            if not text:
                return False
            _show(text.decode(errors="replace"))
        else:
            typed = os.read(0, 4096)
            try:
                if typed:
                    rank.sendall(typed)
                else:
                    waiter.unregister(0)
                    rank.shutdown(socket.SHUT_WR)
            except OSError:  # the rank has gone on
                return False
    return True


def _show(text: str) -> None:
    """Prints the rank's text; control sequences are shown, not obeyed."""
    shown = (c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)
    sys.stdout.write("".join(shown))
    sys.stdout.flush()
