"""A small training for jobs of replicas: a module, a step, and a bit to flip."""

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Block(nn.Module):
    """A block of a transformer without attention: norm, two linears, a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(32)
        self.up = nn.Linear(32, 64)
        self.down = nn.Linear(64, 32)
        self.register_buffer("scale", torch.full((3,), 0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(self.norm(x)))) * self.scale[0]


def model(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(Block(), Block())


def step(module: nn.Module, optimizer: torch.optim.Optimizer, seed: int) -> None:
    torch.manual_seed(seed)
    data = torch.randn(8, 32)
    optimizer.zero_grad()
    module(data).square().mean().backward()
    optimizer.step()


def single() -> tuple[nn.Module, torch.optim.Optimizer]:
    """Returns a module of one process and its optimizer."""
    module = model()
    return module, torch.optim.AdamW(module.parameters(), lr=0.01)


def trained(rank: int, steps: int = 2) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Returns a module in DDP and its optimizer after some steps on each rank's own data."""
    module = DistributedDataParallel(model())
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.01)
    for number in range(steps):
        step(module, optimizer, 100 * number + rank)
    return module, optimizer


def flip(tensor: torch.Tensor, element: int, bit: int) -> None:
    """Flips a bit of a float32."""
    tensor.detach().view(-1).view(torch.int32)[element] ^= 1 << bit
