"""Finds the variable that a misspelt name may mean."""

from difflib import get_close_matches

from oddrank.advise.variables import KNOWN

_SHORTEST, _LONGEST = 8, 80
_ALIKE = 0.9
"""difflib's ratio: a slip of the hand in ten letters."""


def nearest(name: str) -> str:
    """Returns the known name that `name` misspells; "" if it is known, or near to none.

    Upper and lower case count as the same letter. The first letter must be right: HCCL_ and RCCL_
    are other libraries than NCCL_.
    """
    if name in KNOWN or not _SHORTEST <= len(name) <= _LONGEST:
        return ""
    upper = name.upper()
    alike = [known for known in sorted(KNOWN) if known[0] == upper[0]]
    return upper if upper in KNOWN else next(iter(get_close_matches(upper, alike, 1, _ALIKE)), "")
