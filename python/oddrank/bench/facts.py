"""Where a case runs, as far as expectations depend on it."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Facts:
    """Where it runs; None: not known. Of ranks that differ the worst (fewest links, slowest NIC).

    gpu: the device's name as the driver says it, None on the CPU. per_node: ranks of a node, one a
    GPU. nics: the line rate in Gb/s of each NIC of a node that carries the traffic.
    links: active NVLinks of a GPU. domain: GPUs that one NVLink switch fabric joins, over nodes.
    """

    gpu: str | None
    per_node: int
    nodes: int
    backend: str
    """"nccl", "c10d:nccl", "c10d:gloo"."""
    nccl: str | None = None
    link: Literal["nvlink", "pcie"] | None = None
    links: int | None = None
    pcie: int | None = None
    """Its generation."""
    nics: tuple[float, ...] = ()
    uneven: bool = False
    """Whether other nodes have other NICs than that."""
    fabric: Literal["rdma", "tcp"] | None = None
    nvls: bool | None = None
    """False where the environment turns it off."""
    ring: bool | None = None
    """The same."""
    domain: int | None = None

    @property
    def n(self) -> int:
        return self.per_node * self.nodes

    @property
    def together(self) -> bool:
        """Whether NVLink or one host joins all ranks, so that no NIC lies between them."""
        return self.nodes == 1 or (self.domain or 0) >= self.n
