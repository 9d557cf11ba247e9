"""Prints the CMake that the build uses: from the environment's wheel, else from PATH."""

import importlib.util
import shutil

if importlib.util.find_spec("cmake") is not None:
    import cmake

    print(cmake.CMAKE_BIN_DIR + "/cmake")
else:
    print(shutil.which("cmake"))
