"""Findings of the stages health, reach and speed; other stages make theirs in their own files."""
