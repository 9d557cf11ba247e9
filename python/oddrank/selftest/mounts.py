"""Which file system a path lies on, from the kernel's list: nothing here asks the file system."""

import os
import re


def mount_of(path: str, mountinfo: str) -> str:
    """Type and source: "nfs4 server:/export"; "" where the list does not tell.

    Links in the path are not followed, for that would ask.
    """
    best, found = "", ""
    inside = os.path.normpath(path) + "/"
    for line in mountinfo.splitlines():
        before, dash, after = line.partition(" - ")
        fields, kind = before.split(" "), after.split(" ")
        if not dash or len(fields) < 5 or len(kind) < 2:
            continue
        point = _plain(fields[4]).rstrip("/") + "/"
        # The last of several on one point hides the others.
        if inside.startswith(point) and len(point) >= len(best):
            best, found = point, f"{kind[0]} {_plain(kind[1])}"
    return found[:200]


def _plain(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
