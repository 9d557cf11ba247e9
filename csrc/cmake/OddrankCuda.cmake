# Decides whether _cuda is built (ODDRANK_CUDA = AUTO | ON | OFF). It needs nvcc and the header nccl.h, nothing else.
# At load it needs no driver, no libcudart (linked statically) and no libnccl (dlopened): see csrc/bench/nccl/api.hpp.
#
# Files that need the headers of CUDA or NCCL are *.cu files or lie in csrc/cuda or a subject's folder nccl/.
# oddrank_library() leaves them out; the static library oddrank_cuda holds exactly these. A subject's bindings to them
# are its bind_cuda*.cpp. All are globs: a new kernel needs no line here.
set(ODDRANK_CUDA_ARCHITECTURES "" CACHE STRING
    "GPUs to compile for, as in CMAKE_CUDA_ARCHITECTURES; empty: all that nvcc knows from sm_75 to sm_120")
set(ODDRANK_NCCL_INCLUDE "" CACHE PATH "Folder of nccl.h; empty: toolkit, system, nvidia-nccl wheel")

# Sets CUDACXX for check_language(), which by itself looks at CUDACXX and PATH only.
function(oddrank_point_at_nvcc)
  if(DEFINED ENV{CUDACXX} OR CMAKE_CUDA_COMPILER)
    return()
  endif()
  # CUDA_HOME comes before PATH: users set it on purpose.
  find_program(nvcc nvcc NO_CACHE NO_DEFAULT_PATH PATHS "$ENV{CUDA_HOME}/bin" "$ENV{CUDA_PATH}/bin")
  if(NOT nvcc)
    find_program(nvcc nvcc NO_CACHE PATHS /usr/local/cuda/bin)
  endif()
  if(nvcc)
    set(ENV{CUDACXX} ${nvcc})
  endif()
endfunction()

# Lists the wanted architectures that this nvcc knows; the newest also as PTX, which future GPUs compile themselves.
function(oddrank_cuda_architectures result)
  if(ODDRANK_CUDA_ARCHITECTURES)
    set(${result} ${ODDRANK_CUDA_ARCHITECTURES} PARENT_SCOPE)
    return()
  endif()
  execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --list-gpu-arch OUTPUT_VARIABLE known ERROR_QUIET)
  foreach(number 75 80 86 89 90 100 103 120)
    if(known MATCHES "compute_${number}[\r\n]")
      list(APPEND list ${number}-real)
      set(newest ${number})
    endif()
  endforeach()
  list(APPEND list ${newest}-virtual)
  set(${result} ${list} PARENT_SCOPE)
endfunction()

# Finds the folder of nccl.h. The interpreter that we install into looks for the wheel: as it is, then without the
# PYTHONPATH by which pip's build isolation hides that interpreter's own site-packages.
function(oddrank_find_nccl_header result)
  string(CONCAT script
    "import importlib.util, os\n"
    "for folder in importlib.util.find_spec('nvidia.nccl').submodule_search_locations:\n"
    "    print(os.path.join(folder, 'include'))\n")
  set(isolation_off ${CMAKE_COMMAND} -E env --unset=PYTHONPATH --unset=PYTHONNOUSERSITE --)
  execute_process(COMMAND ${Python_EXECUTABLE} -c "${script}" OUTPUT_VARIABLE wheel ERROR_QUIET)
  execute_process(COMMAND ${isolation_off} ${Python_EXECUTABLE} -c "${script}"
                  OUTPUT_VARIABLE hidden_wheel ERROR_QUIET)
  string(REPLACE "\n" ";" wheels "${wheel}${hidden_wheel}")
  if(ODDRANK_NCCL_INCLUDE)
    find_path(folder nccl.h NO_CACHE NO_DEFAULT_PATH PATHS ${ODDRANK_NCCL_INCLUDE})
  else()
    find_path(folder nccl.h NO_CACHE NO_DEFAULT_PATH PATHS
              ${CUDAToolkit_INCLUDE_DIRS} "$ENV{NCCL_HOME}/include")
    if(NOT folder)
      find_path(folder nccl.h NO_CACHE PATHS ${wheels})
    endif()
  endif()
  set(${result} "${folder}" PARENT_SCOPE)
endfunction()

function(oddrank_cuda_library)
  set(csrc ${PROJECT_SOURCE_DIR}/csrc)
  file(GLOB_RECURSE kernels CONFIGURE_DEPENDS ${csrc}/*.cu)
  file(GLOB host_sources CONFIGURE_DEPENDS ${csrc}/cuda/*.cpp ${csrc}/*/nccl/*.cpp)
  list(FILTER host_sources EXCLUDE REGEX "/bind_cuda[a-z_]*\\.cpp$")
  add_library(oddrank_cuda STATIC ${kernels} ${host_sources})
  # C++17 in .cu files: CMake 3.25 does not know nvcc's flag for C++20.
  set_target_properties(oddrank_cuda PROPERTIES
    CUDA_STANDARD 17 CUDA_STANDARD_REQUIRED ON CUDA_EXTENSIONS OFF CUDA_VISIBILITY_PRESET hidden
    CUDA_RUNTIME_LIBRARY Static)
  target_include_directories(oddrank_cuda PUBLIC ${csrc})
  target_include_directories(oddrank_cuda SYSTEM PUBLIC ${ODDRANK_NCCL_FOLDER})
  target_compile_options(oddrank_cuda PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>)
  target_link_libraries(oddrank_cuda PUBLIC oddrank_os oddrank_bench CUDA::cudart_static PRIVATE oddrank_warnings)
endfunction()

function(oddrank_cuda_absent reason advice)
  if(ODDRANK_CUDA STREQUAL "ON")
    message(FATAL_ERROR "oddrank: ODDRANK_CUDA=ON, but ${reason}. ${advice}")
  endif()
  oddrank_part(_cuda "${reason}" "${advice}")
endfunction()

function(oddrank_build_cuda)
  set(reinstall "then install oddrank again with --no-cache-dir --force-reinstall")
  if(NOT CMAKE_CUDA_COMPILER)
    if(DEFINED ENV{CUDACXX})
      set(reason "$ENV{CUDACXX} cannot compile CUDA code")
    else()
      set(reason "nvcc was not found (CUDACXX, CUDA_HOME, PATH, /usr/local/cuda)")
    endif()
    find_program(hipcc hipcc NO_CACHE PATHS "$ENV{ROCM_PATH}/bin" /opt/rocm/bin)
    if(hipcc)
      oddrank_cuda_absent("${reason}, and ROCm (${hipcc}) is not supported" "On AMD GPUs only the parts for the CPU work")
      return()
    endif()
    oddrank_cuda_absent("${reason}" "Install the CUDA toolkit or set CUDACXX=/path/to/nvcc, ${reinstall}")
    return()
  endif()
  find_package(CUDAToolkit QUIET)
  if(NOT TARGET CUDA::cudart_static)
    oddrank_cuda_absent("libcudart_static.a was not found beside ${CMAKE_CUDA_COMPILER}"
                        "Install the CUDA toolkit's development files, ${reinstall}")
    return()
  endif()
  oddrank_find_nccl_header(ODDRANK_NCCL_FOLDER)
  if(NOT ODDRANK_NCCL_FOLDER)
    oddrank_cuda_absent("nccl.h was not found (toolkit, system, nvidia-nccl wheel)"
                        "pip install nvidia-nccl-cu${CUDAToolkit_VERSION_MAJOR} or pass -DODDRANK_NCCL_INCLUDE=FOLDER, ${reinstall}")
    return()
  endif()
  file(STRINGS ${ODDRANK_NCCL_FOLDER}/nccl.h version REGEX "^#define NCCL_(MAJOR|MINOR) +[0-9]+")
  string(REGEX REPLACE "[^0-9]*([0-9]+)[^0-9]+([0-9]+).*" "\\1.\\2" version "${version}")
  if(version VERSION_LESS 2.19)
    oddrank_cuda_absent("${ODDRANK_NCCL_FOLDER}/nccl.h is of NCCL ${version}, older than 2.19"
                        "pip install nvidia-nccl-cu${CUDAToolkit_VERSION_MAJOR} and pass its folder as -DODDRANK_NCCL_INCLUDE, ${reinstall}")
    return()
  endif()

  oddrank_cuda_architectures(CMAKE_CUDA_ARCHITECTURES)
  oddrank_cuda_library()
  file(GLOB bindings CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/csrc/*/bind_cuda*.cpp)
  oddrank_module(_cuda modules/cuda.cpp SOURCES ${bindings})
  target_link_libraries(_cuda PRIVATE oddrank_cuda)
  list(JOIN CMAKE_CUDA_ARCHITECTURES " " architectures)
  target_compile_definitions(_cuda PRIVATE
    ODDRANK_NVCC="nvcc ${CMAKE_CUDA_COMPILER_VERSION}" ODDRANK_NCCL_HEADER="${version}"
    ODDRANK_ARCHITECTURES="${architectures}")
  message(STATUS "oddrank: _cuda by nvcc ${CMAKE_CUDA_COMPILER_VERSION} for ${architectures}, "
                 "nccl.h ${version} in ${ODDRANK_NCCL_FOLDER}")
endfunction()

if(ODDRANK_CUDA STREQUAL "OFF")
  oddrank_part(_cuda "it was switched off (ODDRANK_CUDA=OFF)"
               "Install oddrank again with ODDRANK_CUDA=AUTO and --no-cache-dir --force-reinstall")
else()
  if(NOT CMAKE_CUDA_COMPILER)
    unset(CMAKE_CUDA_COMPILER CACHE)  # "not found" is kept in the build folder, a toolkit may have come since
  endif()
  oddrank_point_at_nvcc()
  # Finds out whether the compiler works without ending the build. enable_language() must be
  # called here, at the top: not in a function.
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
  endif()
  oddrank_build_cuda()
endif()
