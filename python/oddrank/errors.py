"""The exceptions that oddrank raises. Each message names the failure, its cause and the remedy."""


class OddrankError(Exception):
    """oddrank could not do its task.

    Commands turn it into one line on stderr and the exit code `exit_code`.
    """

    exit_code = 2


class MissingPartError(OddrankError):
    """A compiled part (`_core`, `_cuda`, `_torch`) is absent or does not fit.

    The message names the command to type.
    """


class LaunchError(OddrankError):
    """The launcher's environment variables contradict each other or are not numbers."""


def type_and_text(error: BaseException) -> str:
    """Returns `Type: text` with the first line of the error's text, its blanks folded."""
    text = " ".join(str(error).split("\n", 1)[0].split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
