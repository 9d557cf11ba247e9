"""Draws saved reports of `bench run` and `bench pairs`."""
