"""Prints the CMake that the build uses: the environment's wheel's, else the one on PATH."""

import importlib.util
import shutil

if importlib.util.find_spec("cmake") is not None:
    import cmake

    print(cmake.CMAKE_BIN_DIR + "/cmake")
else:
    print(shutil.which("cmake"))
