"""Which sender, receiver or link is slow: every node meets every other, each rank its node."""
