"""Finds out which parts are built, loaded or missing, in child processes, since they may hang."""
