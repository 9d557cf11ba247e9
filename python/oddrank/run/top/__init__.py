"""All ranks of this host, live."""
