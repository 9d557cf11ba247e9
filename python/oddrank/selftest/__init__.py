"""Is this allocation healthy, and which rank, GPU, link or node is not: a table of stages."""
