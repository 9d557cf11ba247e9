# Finds pybind11: in the build environment's site-packages (scikit-build-core passes it) or in the interpreter's.
find_package(pybind11 2.13 CONFIG QUIET)
if(NOT pybind11_FOUND)
  execute_process(COMMAND ${Python_EXECUTABLE} -m pybind11 --cmakedir
                  OUTPUT_VARIABLE pybind11_ROOT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  find_package(pybind11 2.13 CONFIG REQUIRED)
endif()
