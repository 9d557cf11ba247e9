"""The evidence about each rank and stage, and the nodes that ranks share."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from oddrank.control.stages import RunState

# The stage with which every command begins: a rank's result is that its guard has come.
JOIN = "join"
# Rank 0's step in join until its address is published; then it waits for the other ranks.
PUBLISHING = "publish the address"

Contact = Literal["never", "ok", "silent", "closed", "gave-up"]
Life = Literal["running", "stopped", "zombie", "dead", "uninterruptible"]
Reason = Literal["complete", "fault", "deadline", "terminated"]
Node: TypeAlias = tuple[int, str]
"""The number of a node, and the name of its host."""


@dataclass(frozen=True)
class RankEvidence:
    """The evidence about one rank, as its guard reported it."""

    rank: int
    host: str = ""  # "" (and node -1) if it never came
    node: int = -1
    local_rank: int = -1
    pid: int = 0
    contact: Contact = "never"  # the root's contact with its guard
    state: Life = "running"  # its process, by the kernel
    signal: int | None = None  # the one that killed it
    exit_code: int | None = None
    stage: str = ""
    step: str = ""
    progress: int = 0  # marks so far: comparable between ranks of one program
    waiting: bool = False  # inside a collective
    published: bool = False  # has given this stage's result
    failed: str | None = None  # the exception's text
    sigterm: int = 0  # the first SIGTERM or SIGINT that it got; 0: neither
    sigterm_by: int = 0  # pid of the signal's sender; 0: unknown or another namespace
    first_fault_ns: int = 0  # on the judge's clock; 0: no fault
    orphaned: bool = False  # its launcher has gone
    local_world: int = 0  # ranks of its host, at most; 0: it never came
    launcher: str = ""  # name; "": its end does not end the job
    launcher_pid: int = 0
    parting: str = ""  # why its guard left, if contact is gave-up
    unreached: str = ""  # why its guard does not reach the root, by torch's store


@dataclass(frozen=True)
class RoundEvidence:
    """The evidence about a stage that is over. Only the reason "complete" means all results."""

    stage: str
    results: Collection[int]  # the ranks that gave a result
    states: Mapping[int, RankEvidence]
    reason: Reason
    # Ranks turned away for another WORLD_SIZE.
    other_worlds: Collection[int] = ()
    limits: str = ""  # why ranks may have been unable to come (open files); "": nothing known


def node_of(state: RankEvidence) -> Node:
    """Return the key of a rank's node: all ranks of the node have it, and no other rank."""
    return (state.node, state.host)


def by_node(states: Iterable[RankEvidence]) -> dict[Node, list[RankEvidence]]:
    """Return the ranks of each node, without ranks that never came."""
    nodes: dict[Node, list[RankEvidence]] = {}
    for state in states:
        if state.contact != "never":
            nodes.setdefault(node_of(state), []).append(state)
    return nodes


def nodes_of(run: "RunState") -> list[tuple[int, ...]]:
    """Return the ranks of each node; nodes in the order of their lowest rank."""
    nodes: dict[Node, list[int]] = {}
    for rank, state in sorted(run.states.items()):
        nodes.setdefault(node_of(state), []).append(rank)
    return sorted(tuple(ranks) for ranks in nodes.values())
