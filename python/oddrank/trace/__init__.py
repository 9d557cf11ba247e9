"""Records where each rank is and was."""

from oddrank.trace.stdout import Tee

__all__ = ["Tee"]
