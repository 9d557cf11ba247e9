# Two verbs: oddrank_library(subject [subjects it uses...]) and oddrank_module(name sources... LIBRARIES subjects...).
# A file in a subject's folder is part of it: the list is a glob that is looked at on every build. Both give their
# targets the flags of oddrank_warnings.
set(ODDRANK_PARTS "" CACHE INTERNAL "JSON members, one per module, for the build report")

# Warnings and sanitizers for our own targets only: headers of others are SYSTEM.
add_library(oddrank_warnings INTERFACE)
target_compile_options(oddrank_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wswitch-enum>)

# The flags of the sanitizers.
set(instruments "")
if(ODDRANK_SANITIZE STREQUAL "thread")
  set(instruments -fsanitize=thread)
elseif(ODDRANK_SANITIZE STREQUAL "fuzzer")
  set(instruments -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-coverage=trace-cmp)
elseif(ODDRANK_SANITIZE STREQUAL "coverage")
  set(instruments -fsanitize=fuzzer-no-link -fprofile-instr-generate -fcoverage-mapping)
elseif(ODDRANK_SANITIZE)
  set(instruments -fsanitize=address,undefined)
endif()
if(instruments)
  target_compile_options(oddrank_warnings INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:${instruments} -fno-omit-frame-pointer>)
  target_link_options(oddrank_warnings INTERFACE ${instruments})
endif()
if(instruments MATCHES "undefined")
  target_compile_options(oddrank_warnings INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize-recover=undefined>)
endif()
if(ODDRANK_SANITIZE STREQUAL "fuzzer")
  target_compile_definitions(oddrank_warnings INTERFACE _GLIBCXX_ASSERTIONS)
endif()
# GCC's thread sanitizer does not know fences; the data around ours are atomic anyway.
if(ODDRANK_SANITIZE STREQUAL "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(oddrank_warnings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-tsan>)
endif()

# csrc/<subject>/**/*.cpp becomes the static library oddrank_<subject>, without bind*.cpp, program*.cpp and the folders nccl/, torch/
# (see OddrankCuda.cmake and OddrankTorch.cmake), and without the files that need Python.h: cpython/, hooks/.
function(oddrank_library subject)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}
       ${PROJECT_SOURCE_DIR}/csrc/${subject}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/(bind_[a-z_]*|program_[a-z_]*|nccl/.*|torch/.*|cpython/.*|hooks/.*)\\.cpp$")
  add_library(oddrank_${subject} STATIC ${sources})
  target_include_directories(oddrank_${subject} PUBLIC ${PROJECT_SOURCE_DIR}/csrc)
  list(TRANSFORM ARGN PREPEND oddrank_ OUTPUT_VARIABLE uses)
  target_link_libraries(oddrank_${subject} PUBLIC ${uses} Threads::Threads ${CMAKE_DL_LIBS}
                        PRIVATE oddrank_warnings)
endfunction()

# The files that need Python.h and are no bindings become the static library oddrank_cpython.
function(oddrank_cpython_library)
  set(csrc ${PROJECT_SOURCE_DIR}/csrc)
  file(GLOB sources CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}
       ${csrc}/*/cpython/*.cpp ${csrc}/*/hooks/*.cpp)
  add_library(oddrank_cpython STATIC ${sources})
  # The hooks use the same names for the same things, so they cannot be compiled as one file.
  list(FILTER sources INCLUDE REGEX "/trace/")
  set_source_files_properties(${sources} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  target_link_libraries(oddrank_cpython PUBLIC oddrank_trace oddrank_control oddrank_printing
                        PRIVATE pybind11::pybind11 oddrank_warnings)
endfunction()

# A Python extension module: its list of bindings (csrc/modules/), SOURCES and, of each library,
# csrc/<subject>/bind_*.cpp, without bind_cuda*.cpp. BUILT_AGAINST: key and value, for the build report.
function(oddrank_module name source)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "SOURCES;LIBRARIES;BUILT_AGAINST")
  set(sources csrc/${source} ${arg_SOURCES})
  foreach(subject IN LISTS arg_LIBRARIES)
    file(GLOB bindings CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}
         ${PROJECT_SOURCE_DIR}/csrc/${subject}/bind_*.cpp)
    list(FILTER bindings EXCLUDE REGEX "/bind_cuda[a-z_]*\\.cpp$")
    list(APPEND sources ${bindings})
  endforeach()
  pybind11_add_module(${name} MODULE ${sources})
  list(TRANSFORM arg_LIBRARIES PREPEND oddrank_ OUTPUT_VARIABLE libraries)
  target_link_libraries(${name} PRIVATE ${libraries} oddrank_warnings)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/csrc)
  # Bindings run once in a call, but take a third of the build: half of it in pybind11's own functions, which each
  # compiled file repeats. So they are one file, less optimized, without line tables.
  set_target_properties(${name} PROPERTIES UNITY_BUILD_BATCH_SIZE 0)
  target_compile_options(${name} PRIVATE "$<$<CONFIG:RelWithDebInfo>:-O1;-g0>")
  # Static libraries must not export their symbols from the module either.
  target_link_options(${name} PRIVATE -Wl,--exclude-libs,ALL)
  # Nor what templates of libstdc++ leave behind: those have default visibility in spite of ours. libtorch's headers,
  # however, have inline variables that must be one with the library's, so _torch keeps them.
  if(NOT name STREQUAL "_torch")
    set(exports ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/module.map)
    target_link_options(${name} PRIVATE -Wl,--version-script=${exports})
    set_target_properties(${name} PROPERTIES LINK_DEPENDS ${exports})
  endif()
  string(TOUPPER "${CMAKE_BUILD_TYPE}" type)
  string(STRIP "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${type}}" flags)
  target_compile_definitions(${name} PRIVATE
    ODDRANK_COMPILER="${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}"
    ODDRANK_COMPILER_FLAGS="${flags}" ODDRANK_VERSION="${SKBUILD_PROJECT_VERSION}"
    ODDRANK_CMAKE_VERSION="${CMAKE_VERSION}")
  install(TARGETS ${name} LIBRARY DESTINATION oddrank)
  oddrank_part(${name} "" "" ${arg_BUILT_AGAINST})
endfunction()

# Notes a module in the build report; an empty reason means that it is built. Pairs of key and value may follow.
function(oddrank_part name reason advice)
  foreach(text reason advice)
    string(REPLACE "\\" "\\\\" ${text} "${${text}}")
    string(REPLACE "\"" "\\\"" ${text} "${${text}}")
  endforeach()
  set(pairs "\"reason\": \"${reason}\", \"advice\": \"${advice}\"")
  set(against "")
  while(ARGN)
    list(POP_FRONT ARGN key value)
    string(APPEND pairs ", \"${key}\": \"${value}\"")
    string(APPEND against " against ${key} ${value}")
  endwhile()
  set(member "  \"${name}\": {${pairs}}")
  set(ODDRANK_PARTS "${ODDRANK_PARTS}" "${member}" CACHE INTERNAL "")
  if(reason)
    set(ODDRANK_NOTES "${ODDRANK_NOTES}" "oddrank: ${name} is not built: ${reason}. ${advice}"
        CACHE INTERNAL "")
  else()
    set(ODDRANK_NOTES "${ODDRANK_NOTES}" "oddrank: ${name} is built${against}" CACHE INTERNAL "")
  endif()
endfunction()
set(ODDRANK_NOTES "" CACHE INTERNAL "")

# oddrank/_build.py tells _native.py at run time why a module is absent (a module, since an editable install redirects
# imports only); the same lines end the build's log.
function(oddrank_write_build_report)
  list(FILTER ODDRANK_PARTS INCLUDE REGEX ".")
  list(JOIN ODDRANK_PARTS ",\n" members)
  file(WRITE ${CMAKE_BINARY_DIR}/_build.py
       "\"\"\"Written by the build: why a compiled part is absent ('' where it was built).\"\"\"\n\nPARTS: dict[str, dict[str, str]] = {\n${members}\n}\n")
  install(FILES ${CMAKE_BINARY_DIR}/_build.py DESTINATION oddrank)
  list(FILTER ODDRANK_NOTES INCLUDE REGEX ".")
  foreach(note IN LISTS ODDRANK_NOTES)
    message(STATUS "${note}")
    install(CODE "message(STATUS [==[${note}]==])")
  endforeach()
endfunction()
