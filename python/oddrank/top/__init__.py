"""`oddrank top`: the ranks of this host, live."""
