"""What is a fact of a node is measured by one rank of it: the lowest."""

from collections.abc import Iterable
from dataclasses import dataclass

from oddrank.control.nodes import nodes_of
from oddrank.control.stages import Rounds


@dataclass(frozen=True)
class OneANode:
    """The ranks that measure, as bits: short enough for a plan, at 10,000 nodes too."""

    mask: int

    @staticmethod
    def of(rounds: Rounds) -> "OneANode":
        return OneANode.among(ranks[0] for ranks in nodes_of(rounds))

    @staticmethod
    def among(ranks: Iterable[int]) -> "OneANode":
        return OneANode(sum(1 << rank for rank in ranks))

    @staticmethod
    def unpack(text: str) -> "OneANode":
        return OneANode(int(text, 16))

    def pack(self) -> str:
        return f"{self.mask:x}"

    def __contains__(self, rank: int) -> bool:
        return bool(self.mask >> rank & 1)

    def __len__(self) -> int:
        return bin(self.mask).count("1")

    def place(self, rank: int) -> int:
        """Which of them it is: 0, 1, ... by rank."""
        return bin(self.mask & ((1 << rank) - 1)).count("1")


def hosts_of(rounds: Rounds) -> int:
    """How many have come; their names tell them apart."""
    return len({state.host for state in rounds.states.values()})
