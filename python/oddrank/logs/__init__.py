"""Finds the writer of each line of a log: split, merge, first-error."""
