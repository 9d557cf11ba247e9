"""Prints `folder;version` of the torch that this interpreter would import; does not import it."""

import importlib.util
import os
import re


def main() -> None:
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return
    folder = os.path.dirname(found.origin)
    try:
        with open(os.path.join(folder, "version.py"), encoding="utf-8") as file:
            version = re.search(r"""^__version__ *= *['"]([^'"]+)""", file.read(), re.MULTILINE)
    except OSError:
        return
    if version:
        print(f"{folder};{version[1]}")


main()
