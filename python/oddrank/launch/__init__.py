"""This process's place in its job: rank, local rank, world, node, host, master."""

from oddrank.launch.resolve import (
    Launch,
    current,
    fakes_terminals,
    refuse_half,
    tell_launcher,
)

__all__ = [
    "Launch",
    "current",
    "fakes_terminals",
    "refuse_half",
    "tell_launcher",
]
