# Compiling the CUDA kernels' objects with nvcc.
#
# Every .cu file is compiled once, for the FLASHCORE_CUDA_TARGETS that its family of kernels has
# code for; the table of kernels is told which those were (cuda/host/kernel_targets.hpp.in). What
# ptxas says about registers, spills and shared memory is kept next to each object as *.ptxas.txt,
# which tools/check_resources.py reads; a spill, or a ptxas warning that a fast path was dropped,
# fails the compilation.
find_package(Python3 REQUIRED COMPONENTS Interpreter)

# The products at the end of ptx/wgmma.cuh.
set(wgmma ${PROJECT_SOURCE_DIR}/tools/wgmma.py)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${wgmma})
execute_process(COMMAND ${Python3_EXECUTABLE} ${wgmma} ${CMAKE_CURRENT_BINARY_DIR}/generated COMMAND_ERROR_IS_FATAL ANY)

target_include_directories(flashcore_cuda PRIVATE ${PROJECT_SOURCE_DIR}/src ${CMAKE_CURRENT_BINARY_DIR}/generated)
target_include_directories(flashcore_cuda SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
target_compile_options(flashcore_cuda PRIVATE
  $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;-Xptxas=-v;--compress-mode=size>
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-Wno-unused-parameter>
  $<$<AND:$<BOOL:${FLASHCORE_WERROR}>,$<COMPILE_LANGUAGE:CUDA>>:-Werror=all-warnings>)
set(report_mode "")
if(NOT FLASHCORE_WERROR)
  set(report_mode "--lenient")
endif()
set_target_properties(flashcore_cuda PROPERTIES RULE_LAUNCH_COMPILE
  "${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/compile_cuda.py ${report_mode} <OBJECT>.ptxas.txt --")

# flashcore_cuda_sources(FAMILY [LISTED] [EXCEPT 90a | ONLY 90a] SOURCES a.cu ...): the files of a family. Where there is
# no target for them, LISTED files are not compiled, and flashcore_cuda_compiled is OFF: the list of instances leaves
# them out. Others are compiled for the first target that is built, and never run.
function(flashcore_cuda_sources family)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "LISTED" "EXCEPT;ONLY" "SOURCES")
  set(targets ${${family}_targets})
  list(REMOVE_ITEM targets "${ARG_EXCEPT}")
  if(ARG_ONLY)
    list(FILTER targets INCLUDE REGEX "^${ARG_ONLY}$")
  endif()
  if(FLASHCORE_CUDA_ONE_TYPE AND ARG_SOURCES MATCHES "/f16_[^/]*$" AND "90a" IN_LIST targets)
    set(targets 90a)
  endif()
  set(flashcore_cuda_compiled ON PARENT_SCOPE)
  if(NOT targets)
    if(ARG_LISTED)
      set(flashcore_cuda_compiled OFF PARENT_SCOPE)
      return()
    endif()
    list(GET FLASHCORE_CUDA_TARGETS 0 targets)
    string(REPLACE "+ptx" "" targets ${targets})
  endif()
  flashcore_gencode(options ${targets})
  target_sources(flashcore_cuda PRIVATE ${ARG_SOURCES})
  set_source_files_properties(${ARG_SOURCES} PROPERTIES
    COMPILE_OPTIONS "${options}"
    OBJECT_DEPENDS "${PROJECT_SOURCE_DIR}/tools/compile_cuda.py;${PROJECT_SOURCE_DIR}/tools/ptxas_report.py")
endfunction()
