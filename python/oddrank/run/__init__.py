"""Watches a job while it runs, and says what goes wrong."""
