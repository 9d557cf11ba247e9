"""Who can open a TCP connection to whom: the ways, the attempts, the matrix."""
