"""Explains the environment variables of a job, and warns of those that are known to hurt."""
