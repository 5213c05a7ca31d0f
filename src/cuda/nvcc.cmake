# Compiling the CUDA kernels' objects with nvcc.
#
# Every .cu file is compiled once, for those of FLASHCORE_CUDA_TARGETS that its family of kernels has
# code for; the table of kernels is told which those were (cuda/host/kernel_targets.hpp.in). What
# ptxas says about registers, spills and shared memory is kept beside each object as *.ptxas.txt,
# which tools/check_resources.py reads; a spill, or a ptxas warning that a fast path was dropped,
# fails the compilation.
find_package(Python3 REQUIRED COMPONENTS Interpreter)

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

# flashcore_cuda_sources(FAMILY [LISTED] [EXCEPT 90a | ONLY 90a] [GROUP NAME] SOURCES a.cu ...): the files of a
# family. Those of one GROUP are compiled as one file, because reading the headers is most of a small file's time:
# generated/FOLDER/NAME.cu, where FOLDER has the family's kernel.json. Where there is no target for them, LISTED
# files are not compiled, and flashcore_cuda_compiled is OFF: a list of instances leaves them out. Others are
# compiled for the first target that is built, and never run.
set_property(GLOBAL PROPERTY flashcore_cuda_groups "")
function(flashcore_cuda_sources family)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "LISTED" "EXCEPT;ONLY;GROUP" "SOURCES")
  set(targets ${${family}_targets})
  list(REMOVE_ITEM targets "${ARG_EXCEPT}")
  if(ARG_ONLY)
    list(FILTER targets INCLUDE REGEX "^${ARG_ONLY}$")
  endif()
  cmake_path(GET ARG_SOURCES FILENAME name)
  if(FLASHCORE_CUDA_ONE_TYPE AND "${ARG_GROUP} ${name}" MATCHES "(^| )f16_" AND "90a" IN_LIST targets)
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
  if(ARG_GROUP)
    set(group "${${family}_folder}/${ARG_GROUP}")
    set_property(GLOBAL APPEND PROPERTY "flashcore_cuda_group_${group}" ${ARG_SOURCES})
    get_property(known GLOBAL PROPERTY flashcore_cuda_groups)
    if(group IN_LIST known)
      return()
    endif()
    set_property(GLOBAL APPEND PROPERTY flashcore_cuda_groups ${group})
    set(ARG_SOURCES ${CMAKE_CURRENT_BINARY_DIR}/generated/${group}.cu)
  endif()
  target_sources(flashcore_cuda PRIVATE ${ARG_SOURCES})
  set_source_files_properties(${ARG_SOURCES} PROPERTIES
    COMPILE_OPTIONS "${options}"
    OBJECT_DEPENDS "${PROJECT_SOURCE_DIR}/tools/compile_cuda.py;${PROJECT_SOURCE_DIR}/tools/ptxas_report.py")
endfunction()

# Writes the groups' files; after the last flashcore_cuda_sources.
function(flashcore_cuda_write_groups)
  get_property(groups GLOBAL PROPERTY flashcore_cuda_groups)
  foreach(group ${groups})
    get_property(sources GLOBAL PROPERTY "flashcore_cuda_group_${group}")
    set(text "// Compiled as one file (src/cuda/nvcc.cmake).\n")
    foreach(source ${sources})
      # By a path below an include directory, so that the text is the same in every checkout.
      string(REPLACE "${CMAKE_CURRENT_BINARY_DIR}/generated/" "" source ${source})
      if(NOT EXISTS ${CMAKE_CURRENT_BINARY_DIR}/generated/${source})
        string(PREPEND source "cuda/")
      endif()
      string(APPEND text "#include \"${source}\"\n")
    endforeach()
    file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/generated/${group}.cu CONTENT "${text}" @ONLY)
  endforeach()
endfunction()
