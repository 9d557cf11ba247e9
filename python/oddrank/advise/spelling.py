"""Finds the variable that a misspelt name may mean, by edit distance."""

from oddrank.advise.variables import KNOWN

_SHORTEST = 8
_LONG = 14  # from this length on, two edits count as a slip; below, one
_MOST_LENGTH = 80


def nearest(name: str) -> str:
    """Returns the known name that `name` misspells; "" if it is known, or near to none.

    Near means one edit, or two in a long name; upper and lower case count as the same letter. The
    first letter must be right: HCCL_ and RCCL_ are other libraries than NCCL_.
    """
    if name in KNOWN or not _SHORTEST <= len(name) <= _MOST_LENGTH:
        return ""
    upper, most = name.upper(), 2 if len(name) >= _LONG else 1
    if upper in KNOWN:
        return upper
    best, found = most + 1, ""
    for known in sorted(KNOWN):
        if known[0] == upper[0] and abs(len(known) - len(upper)) <= most:
            edits = distance(upper, known, most)
            if edits < best:
                best, found = edits, known
    return found


def distance(one: str, other: str, most: int) -> int:
    """Returns the edits between two words: insert, delete, replace, or swap two neighbours.

    Returns most + 1 as soon as it must be more. Source: Damerau 1964; optimal string alignment.
    """
    before: list[int] = []
    last = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        row = [i]
        for j, target in enumerate(other, 1):
            edits = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (letter != target))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == target:
                edits = min(edits, before[j - 2] + 1)
            row.append(edits)
        if min(row) > most:
            return most + 1
        before, last = last, row
    return min(last[-1], most + 1)
