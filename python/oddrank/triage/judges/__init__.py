"""Judges: facts in, suspects out. Pure: no files, no clocks, no sentences."""
