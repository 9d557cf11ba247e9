"""Compares two saved reports of `bench run` row by row."""
