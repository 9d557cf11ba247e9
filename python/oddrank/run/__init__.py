"""Runs a training script under oddrank: it says itself what went wrong, while it goes wrong."""
