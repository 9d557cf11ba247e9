"""TCP connections between nodes: interfaces, attempts, and the matrix of results."""
