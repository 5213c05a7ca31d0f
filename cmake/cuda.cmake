# CUDA is built if nvcc is found, unless FLASHCORE_CUDA is off; a message says which it is.
set(FLASHCORE_CUDA_ARCHITECTURES "80+ptx;89;90a" CACHE STRING
    "Compute capabilities to build for; +ptx: with PTX that drivers compile for later ones; native: those of the GPUs here")
set(FLASHCORE_HAS_CUDA OFF)
set(FLASHCORE_CUDA_TARGETS "")
set(FLASHCORE_CUDA_REASON "")  # why there are no CUDA kernels
# Follows CMake's rules for booleans.
string(TOUPPER "${FLASHCORE_CUDA}" wanted)
if(wanted MATCHES "^(OFF|0|NO|N|FALSE)$")
  set(FLASHCORE_CUDA_REASON "FLASHCORE_CUDA is ${FLASHCORE_CUDA}")
elseif(wanted MATCHES "^(AUTO|ON|1|YES|Y|TRUE)$")
  include(CheckLanguage)
  if(NOT CMAKE_CUDA_COMPILER AND EXISTS /usr/local/cuda/bin/nvcc)
    set(CMAKE_CUDA_COMPILER /usr/local/cuda/bin/nvcc)
  endif()
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_ARCHITECTURES OFF)  # given per target, in -gencode lists
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)  # CUDA::cudart_static
    # CMake 3.25 does not know the C++20 dialect of nvcc 12 and later.
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
    set(FLASHCORE_HAS_CUDA ON)
    set(FLASHCORE_CUDA_TARGETS ${FLASHCORE_CUDA_ARCHITECTURES})
    if(FLASHCORE_CUDA_TARGETS STREQUAL "native")
      include(${CMAKE_CURRENT_LIST_DIR}/native_targets.cmake)
      flashcore_native_targets(FLASHCORE_CUDA_TARGETS)
    endif()
    message(STATUS "CUDA kernels: built for ${FLASHCORE_CUDA_TARGETS} with ${CMAKE_CUDA_COMPILER}")
  elseif(NOT wanted STREQUAL "AUTO")
    message(FATAL_ERROR "FLASHCORE_CUDA is ${FLASHCORE_CUDA}, but no CUDA compiler (nvcc) was found")
  else()
    set(FLASHCORE_CUDA_REASON "nvcc was not found")
  endif()
else()
  message(FATAL_ERROR "FLASHCORE_CUDA is '${FLASHCORE_CUDA}', wanted AUTO, ON or OFF")
endif()

# flashcore_gencode(OUT 80+ptx 90a): nvcc's options for these targets.
function(flashcore_gencode out)
  set(options "")
  foreach(target ${ARGN})
    string(REPLACE "+ptx" "" code ${target})
    list(APPEND options -gencode=arch=compute_${code},code=sm_${code})
    if(NOT code STREQUAL target)
      list(APPEND options -gencode=arch=compute_${code},code=compute_${code})
    endif()
  endforeach()
  set(${out} "${options}" PARENT_SCOPE)
endfunction()
if(FLASHCORE_WHEEL AND FLASHCORE_HAS_CUDA)
  set(text "flashcore: the CUDA kernels are being built, which takes minutes (pip's -v shows how far it is). "
    "pip install . --config-settings=cmake.define.FLASHCORE_CUDA=OFF leaves them out.")
  string(CONCAT text ${text})
  # pip shows a build's output only with -v, so this goes to the terminal, if there is one.
  execute_process(COMMAND sh -c "printf '\\n%s\\n' \"$0\" >/dev/tty" "${text}"
    RESULT_VARIABLE ignored ERROR_QUIET)
endif()
if(FLASHCORE_SIMULATOR)
  if(FLASHCORE_HAS_CUDA)
    message(FATAL_ERROR "FLASHCORE_SIMULATOR is ON with CUDA, wanted -DFLASHCORE_CUDA=OFF: the "
      "simulator has a build folder of its own")
  endif()
  set(FLASHCORE_CUDA_TARGETS 80 89 90a)  # targets of the simulated GPUs
  message(STATUS "CUDA kernels: compiled as plain C++ for the simulator")
elseif(NOT FLASHCORE_HAS_CUDA)
  message(STATUS "CUDA kernels: not built (${FLASHCORE_CUDA_REASON}); the CPU is used")
endif()
# Read by the scripts.
set(FLASHCORE_HAS_CUDA_CACHED ${FLASHCORE_HAS_CUDA} CACHE INTERNAL "")
set(FLASHCORE_CUDA_REASON_CACHED "${FLASHCORE_CUDA_REASON}" CACHE INTERNAL "")
set(FLASHCORE_CUDA_COMPILER_CACHED "${CMAKE_CUDA_COMPILER}" CACHE INTERNAL "")
set(FLASHCORE_CUDA_INCLUDES_CACHED "${CUDAToolkit_INCLUDE_DIRS}" CACHE INTERNAL "")
