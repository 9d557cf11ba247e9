"""Prints `folder;version;rocm` of the torch that this interpreter would import; doesn't import it.

rocm: the version of ROCm that it is built for; empty if it is built for CUDA or the CPU.
"""

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
            text = file.read()
    except OSError:
        return
    version = re.search(r"""^__version__ *= *['"]([^'"]+)""", text, re.MULTILINE)
    rocm = re.search(r"""^(?:hip|rocm)\b[^=\n]*= *['"]([^'"]+)""", text, re.MULTILINE)
    if version:
        print(f"{folder};{version[1]};{rocm[1] if rocm else ''}")


main()
