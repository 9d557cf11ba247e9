"""Tells all ranks of a running job to save, pause, show their stacks, or end, at the same step."""
