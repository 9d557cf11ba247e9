// Empty: CMake compiles the headers of the C++ tests beside it, once for all of them.
