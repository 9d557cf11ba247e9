# Decides whether _torch is built: needs torch >= 2.11 in the environment that oddrank is installed into. torch is never
# imported here and find_package(Torch) never used: that of a CUDA build wants the whole CUDA toolkit.
set(oddrank_torch_minimum 2.11)
# Minor versions with which the tests of the recorder and of doctor have passed; `oddrank doctor` shows them.
set(oddrank_torch_proven 2.13 2.15)

# Asks the target's interpreter: first as it is (--no-build-isolation, a torch on PYTHONPATH), then without the variables
# by which pip's build isolation hides the environment's own packages.
function(oddrank_find_torch)
  set(finder ${Python_EXECUTABLE} ${PROJECT_SOURCE_DIR}/csrc/cmake/find_torch.py)
  execute_process(COMMAND ${finder} OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT found)
    execute_process(
      COMMAND ${CMAKE_COMMAND} -E env --unset=PYTHONPATH --unset=PYTHONNOUSERSITE -- ${finder}
      OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE)
  endif()
  list(APPEND found "" "" "")
  list(GET found 0 root)
  list(GET found 1 version)
  list(GET found 2 rocm)
  set(oddrank_torch_root "${root}" PARENT_SCOPE)
  set(oddrank_torch_version "${version}" PARENT_SCOPE)
  set(oddrank_torch_rocm "${rocm}" PARENT_SCOPE)
endfunction()

# Sets oddrank_torch_reason (empty: build it) and oddrank_torch_advice.
macro(oddrank_judge_torch)
  set(again "--no-cache-dir --force-reinstall --no-deps")
  set(oddrank_torch_reason "")
  set(oddrank_torch_advice "Install torch >= ${oddrank_torch_minimum}, then oddrank again with ${again}")
  if(ODDRANK_TORCH STREQUAL "OFF")
    set(oddrank_torch_reason "ODDRANK_TORCH was OFF when oddrank was built")
    set(oddrank_torch_advice "Install oddrank again with ODDRANK_TORCH=ON and ${again}")
  elseif(NOT oddrank_torch_root)
    set(oddrank_torch_reason "no torch was found by ${Python_EXECUTABLE} when oddrank was built")
    string(APPEND oddrank_torch_advice
           " (torch is there? A build environment hides it: add --no-build-isolation)")
  elseif(oddrank_torch_version VERSION_LESS oddrank_torch_minimum)
    set(oddrank_torch_reason
        "torch ${oddrank_torch_version} is too old, ${oddrank_torch_minimum} is needed")
  elseif(oddrank_torch_rocm)
    set(oddrank_torch_reason "torch ${oddrank_torch_version} is built for ROCm ${oddrank_torch_rocm}: \
ROCm (AMD GPUs) is not supported")
    set(oddrank_torch_advice "The parts for the CPU work. For the recorder install a torch for CUDA or the CPU, then oddrank again with ${again}")
  elseif(NOT EXISTS ${oddrank_torch_root}/include/torch/csrc/distributed/c10d/ProcessGroup.hpp
         OR NOT EXISTS ${oddrank_torch_root}/lib/libtorch_cpu.so)
    set(oddrank_torch_reason
        "torch ${oddrank_torch_version} in ${oddrank_torch_root} has no C++ headers of torch.distributed")
  endif()
endmacro()

# Files that need torch's headers lie in a subject's folder torch/, with their bindings in bind_*.cpp there.
# oddrank_library() leaves these folders out.
function(oddrank_build_torch)
  set(csrc ${PROJECT_SOURCE_DIR}/csrc)
  file(GLOB sources CONFIGURE_DEPENDS ${csrc}/*/torch/*.cpp)
  set(bindings ${sources})
  list(FILTER sources EXCLUDE REGEX "/bind_[a-z_]*\\.cpp$")
  list(FILTER bindings INCLUDE REGEX "/bind_[a-z_]*\\.cpp$")
  # Two libraries by full path and no RPATH: Python has loaded this very torch before it loads us.
  add_library(oddrank_torch STATIC ${sources})
  target_include_directories(oddrank_torch PUBLIC ${csrc})
  target_include_directories(oddrank_torch SYSTEM PRIVATE
    ${oddrank_torch_root}/include ${oddrank_torch_root}/include/torch/csrc/api/include)
  target_link_libraries(oddrank_torch PRIVATE oddrank_warnings
    PUBLIC oddrank_os ${oddrank_torch_root}/lib/libtorch_cpu.so ${oddrank_torch_root}/lib/libc10.so)
  # Debug information of torch's templates would make up most of the wheel.
  target_compile_options(oddrank_torch PRIVATE -g0)
  # The command line has the version, so that another torch in the same folder recompiles everything.
  target_compile_definitions(oddrank_torch PUBLIC ODDRANK_TORCH_VERSION="${oddrank_torch_version}")
  oddrank_module(_torch modules/torch.cpp SOURCES ${bindings} BUILT_AGAINST torch ${oddrank_torch_version})
  target_link_libraries(_torch PRIVATE oddrank_torch)
  list(JOIN oddrank_torch_proven " " proven)
  target_compile_definitions(_torch PRIVATE ODDRANK_TORCH_PROVEN="${proven}")
  set_target_properties(_torch PROPERTIES SKIP_BUILD_RPATH ON)
endfunction()

# c10d's C++ interface may differ between minor versions: with one that is not proven AUTO first compiles a file.
function(oddrank_try_torch)
  set(log ${CMAKE_BINARY_DIR}/try_torch.log)
  list(JOIN oddrank_torch_proven ", " proven)
  execute_process(
    COMMAND ${CMAKE_CXX_COMPILER} -std=c++20 -fsyntax-only -I${PROJECT_SOURCE_DIR}/csrc
            -isystem ${oddrank_torch_root}/include
            -isystem ${oddrank_torch_root}/include/torch/csrc/api/include
            ${PROJECT_SOURCE_DIR}/csrc/trace/torch/collectives.cpp
    RESULT_VARIABLE failed ERROR_FILE ${log} OUTPUT_QUIET)
  if(failed)
    set(oddrank_torch_reason "torch ${oddrank_torch_version} has another C++ interface than the versions \
that this oddrank is proven with (${proven})" PARENT_SCOPE)
    set(oddrank_torch_advice "Take a newer oddrank, or torch ${proven}" PARENT_SCOPE)
  else()
    message(STATUS "oddrank: torch ${oddrank_torch_version} is not one of the proven versions (${proven}), but it compiles")
  endif()
endfunction()

oddrank_find_torch()
oddrank_judge_torch()
string(REGEX MATCH "^[0-9]+\\.[0-9]+" oddrank_torch_minor "${oddrank_torch_version}")
if(NOT oddrank_torch_reason AND NOT oddrank_torch_minor IN_LIST oddrank_torch_proven
   AND ODDRANK_TORCH STREQUAL "AUTO")
  oddrank_try_torch()
endif()

if(NOT oddrank_torch_reason)
  oddrank_build_torch()
elseif(ODDRANK_TORCH STREQUAL "ON")
  message(FATAL_ERROR "oddrank: ODDRANK_TORCH is ON, but ${oddrank_torch_reason}. ${oddrank_torch_advice}")
else()
  oddrank_part(_torch "${oddrank_torch_reason}" "${oddrank_torch_advice}")
endif()
