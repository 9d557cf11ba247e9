"""The causes that only the self-test names: a file a stage, the only place for sentences."""
