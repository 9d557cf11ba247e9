"""The signal and the length of texts on which a test's process and its ranks agree."""

import signal

DUMP = signal.SIGRTMAX - 5
"""This signal writes the stacks of all threads to the rank's file of stacks."""
MOST_TEXT = 64 << 10


def shortened(text: str, most: int = MOST_TEXT) -> str:
    """Leaves out the middle of a long text."""
    if len(text) <= most:
        return text
    head = most // 4
    left_out = len(text) - most
    return f"{text[:head]}\n... {left_out} characters left out ...\n{text[head - most :]}"
