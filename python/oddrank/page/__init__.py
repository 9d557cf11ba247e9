"""The page of `--html`: a report as one file for a browser, without a network."""
