"""Who wrote which line of a log: split, merge, first-error."""
