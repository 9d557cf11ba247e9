"""Measures collectives and links, and checks every value."""
