"""Whether a rank has its GPU to itself: else its speed says nothing."""

from oddrank.control.nodes import Node, node_of
from oddrank.control.stages import Rounds


def others(rounds: Rounds) -> dict[int, str]:
    """Rank -> who else uses its GPU, where somebody does: its speed says nothing then.

    A container's process ids are not the driver's: of one that is not in the list it is only known
    how many there are, of which one is the rank's own.
    """
    states = rounds.states
    ours: dict[Node, set[int]] = {}
    for state in states.values():
        ours.setdefault(node_of(state), set()).add(state.pid)
    found = {}
    for rank, told in rounds.of("health").items():
        pids, strangers = told.get("processes") or [], 0
        if told.get("pid") in pids:
            here = ours[node_of(states[rank])] if rank in states else set()
            strangers = len(set(pids) - here - {told["pid"]})
        elif pids:
            strangers = len(pids) - 1
        if told.get("mps_clients"):
            found[rank] = "MPS shares it"
        elif strangers > 0:
            found[rank] = f"{strangers} other process{'es' * (strangers > 1)}"
        elif told.get("readings", {}).get("profiled"):
            found[rank] = "a profiler (DCGM)"
    return found
