# The configuration options, and the flags that every target gets.
set(FLASHCORE_CUDA "AUTO" CACHE STRING "Build the CUDA kernels: AUTO (when nvcc is found), ON, OFF")
option(FLASHCORE_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(FLASHCORE_UNITY "Compile bench, evolve and the tests in groups of files: less than half of the time,
but a change compiles its whole group again" ON)
option(FLASHCORE_PCH "Precompile the headers of the standard library, for the library" ON)
option(FLASHCORE_CUDA_ONE_TYPE "Compile what is for fp16 alone for 90a only: for checks without a GPU" OFF)
option(FLASHCORE_FUZZ "With the tests: the libFuzzer programs, and address and undefined sanitizers for all" OFF)
option(FLASHCORE_SIMULATOR "Build the simulator of CUDA kernels and its tests; in a folder of its own" OFF)
option(FLASHCORE_LIBRARY_ONLY "Build the libraries alone, with fewer dependencies; without tests" OFF)
option(FLASHCORE_COVERAGE "With the simulator: count which lines of device code run (gcov)" OFF)
option(FLASHCORE_WHEEL "Build the shared library for a Python wheel: libstdc++ inside" OFF)
if(FLASHCORE_WHEEL)
  set(FLASHCORE_LIBRARY_ONLY ON)
endif()
if(FLASHCORE_LIBRARY_ONLY)
  set(FLASHCORE_TESTS OFF)
endif()
# Only with the compilers of the checks: other compilers may have more warnings, and must still build.
set(werror OFF)
if("${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}" MATCHES "^(GNU 12|Clang 14)[.]")
  set(werror ON)
endif()
option(FLASHCORE_WERROR "Warnings are errors, and so are ptxas's: spills, dropped fast paths"
  ${werror})
option(FLASHCORE_HARDEN "Optimised builds check buffers and the stack, and their targets of calls" ON)
set(FLASHCORE_SANITIZE "" CACHE STRING "Sanitizers, as for -fsanitize: address,undefined or thread")

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

find_program(FLASHCORE_CCACHE ccache)
if(FLASHCORE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_C_COMPILER_LAUNCHER ${FLASHCORE_CCACHE})
  # ccache's manual requires this for precompiled headers; none of our files uses __TIME__.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND};-E;env;CCACHE_SLOPPINESS=pch_defines,time_macros;${FLASHCORE_CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${FLASHCORE_CCACHE})
endif()

# flashcore_precompile(TARGET HEADER...): precompiles these headers, which files include as before, for
# a target that is not compiled in groups. Files with their own options set SKIP_PRECOMPILE_HEADERS.
set(FLASHCORE_STANDARD_HEADERS algorithm array cmath cstddef cstdint cstring functional limits memory optional
    span string string_view utility vector fmt/format.h)
function(flashcore_precompile target)
  if(FLASHCORE_PCH)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)  # for ccache
    else()
      target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-Xclang -fno-pch-timestamp>")
    endif()
    list(TRANSFORM ARGN REPLACE "^(.+)$" "$<$<COMPILE_LANGUAGE:CXX>:<\\1$<ANGLE-R>>")
    target_precompile_headers(${target} PRIVATE ${ARGN})
  endif()
endfunction()

# Not for the library: tests replace some of its files by their own. Files with their own options
# are never in a group.
function(flashcore_in_groups target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${FLASHCORE_UNITY} UNITY_BUILD_BATCH_SIZE 8)
endfunction()

# Warnings for our own C and C++ files; link to it privately.
add_library(flashcore_warnings INTERFACE)
target_compile_options(flashcore_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:C,CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion>
  $<$<AND:$<BOOL:${FLASHCORE_WERROR}>,$<COMPILE_LANGUAGE:C,CXX>>:-Werror>)

if(FLASHCORE_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "FLASHCORE_FUZZ is ON with ${CMAKE_CXX_COMPILER_ID}, wanted Clang")
  endif()
  set(FLASHCORE_SANITIZE address,undefined)
endif()
# libFuzzer's counters, for what the fuzzers feed: kernels and gates would take three times as long with them.
set(FLASHCORE_COUNTED $<$<BOOL:${FLASHCORE_FUZZ}>:-fsanitize=fuzzer-no-link>)
if(FLASHCORE_SANITIZE)
  add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=${FLASHCORE_SANITIZE}>
                      $<$<COMPILE_LANGUAGE:C,CXX>:-fno-omit-frame-pointer>
                      $<$<COMPILE_LANGUAGE:C,CXX>:-fno-sanitize-recover=all>)
  add_link_options(-fsanitize=${FLASHCORE_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC's manual warns about this warning under sanitizers: it reports members of
    # std::regex as uninitialized.
    target_compile_options(flashcore_warnings INTERFACE
      $<$<COMPILE_LANGUAGE:C,CXX>:-Wno-maybe-uninitialized>)
  endif()
endif()

# Checks in what runs on the host, as distributions have them; scripts/check_hardening.py reads the result.
if(FLASHCORE_HARDEN AND NOT FLASHCORE_SANITIZE AND NOT FLASHCORE_SIMULATOR)
  include(CheckCXXCompilerFlag)
  include(CheckPIESupported)
  check_pie_supported()
  set(flags "")
  foreach(flag fstack-protector-strong fstack-clash-protection fcf-protection)
    check_cxx_compiler_flag(-${flag} FLASHCORE_HAS_${flag})
    if(FLASHCORE_HAS_${flag})
      list(APPEND flags -${flag})
    endif()
  endforeach()
  list(JOIN flags "," for_nvcc)
  add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:${flags}>" "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=${for_nvcc}>")
  # Fortified functions need an optimiser.
  add_compile_options("$<$<AND:$<COMPILE_LANGUAGE:C,CXX>,$<NOT:$<CONFIG:Debug>>>:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=3>")
  add_link_options(LINKER:-z,relro,-z,now,-z,noexecstack)
endif()

# Code that takes little of a program's run time: compile time is most of its cost.
set(FLASHCORE_LIGHT $<$<AND:$<COMPILE_LANGUAGE:C,CXX>,$<CONFIG:Release>>:-O1>)
# The library, with a sanitizer: Clang inlines nothing at -O1, and tests of the CPU kernels take three times as long.
set(FLASHCORE_SANITIZED "")
# What judges results, and the tests that compute many.
set(FLASHCORE_JUDGING ${FLASHCORE_LIGHT})
if(FLASHCORE_SANITIZE)
  list(APPEND FLASHCORE_LIGHT $<$<COMPILE_LANGUAGE:C,CXX>:-O0>)
  set(FLASHCORE_SANITIZED $<$<CXX_COMPILER_ID:Clang>:-O2>)
  list(APPEND FLASHCORE_JUDGING ${FLASHCORE_SANITIZED})
endif()
# Tests of such code: the undefined-behaviour sanitizer should check the tested code. With it a file
# of tests/cli takes 43 s to compile, without it and at -O0 13 s.
set(FLASHCORE_LIGHT_TESTS ${FLASHCORE_LIGHT})
if(FLASHCORE_SANITIZE)
  list(APPEND FLASHCORE_LIGHT_TESTS $<$<COMPILE_LANGUAGE:C,CXX>:-fno-sanitize=undefined>)
endif()
