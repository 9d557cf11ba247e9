"""Finds the slow sender, receiver or link, between nodes and inside each."""
