# Which GPUs each family of kernels is compiled for. The same answer goes to nvcc (flashcore_gencode)
# and to the table of kernels (cuda/host/kernel_targets.hpp.in).

# flashcore_cuda_family(NAME 80 90a): which of FLASHCORE_CUDA_TARGETS kernels with code for these are
# compiled for, as NAME_targets. "80+ptx" is code for 8.0 and PTX, which drivers compile for GPUs from
# 8.0 on; families with 80+ptx in their list take it, others take its code alone. Code for 8.0 runs
# on every 8.x: "8x" in a list stands for the others, which are compiled for where 8.0 is not.
function(flashcore_cuda_family name)
  set(targets "")
  foreach(target ${FLASHCORE_CUDA_TARGETS})
    string(REPLACE "+ptx" "" code ${target})
    if(target IN_LIST ARGN)
      list(APPEND targets ${target})
    elseif(code IN_LIST ARGN OR "${code}+ptx" IN_LIST ARGN)
      list(APPEND targets ${code})
    elseif("8x" IN_LIST ARGN AND code MATCHES "^8[0-9]$")
      if(NOT "80" IN_LIST FLASHCORE_CUDA_TARGETS AND NOT "80+ptx" IN_LIST FLASHCORE_CUDA_TARGETS)
        list(APPEND targets ${code})
      endif()
    endif()
  endforeach()
  set(${name}_targets "${targets}" PARENT_SCOPE)
endfunction()

set(FLASHCORE_CUDA_FAMILIES ladder_fp8 ladder_wgmma)
flashcore_cuda_family(ladder_fp8 89 90a)  # e4m3 mma.sync
flashcore_cuda_family(ladder_wgmma 90a)
# The others are the kernels' folders.
file(GLOB kernel_files CONFIGURE_DEPENDS
  ${CMAKE_CURRENT_LIST_DIR}/*/kernel.json ${CMAKE_CURRENT_LIST_DIR}/*/*/kernel.json)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${kernel_files})
foreach(file ${kernel_files})
  file(READ ${file} kernel)
  string(JSON name GET "${kernel}" name)
  string(JSON count LENGTH "${kernel}" targets)
  math(EXPR last "${count} - 1")
  set(wanted "")
  foreach(place RANGE ${last})
    string(JSON target GET "${kernel}" targets ${place})
    list(APPEND wanted ${target})
  endforeach()
  flashcore_cuda_family(${name} ${wanted})
  cmake_path(GET file PARENT_PATH folder)
  cmake_path(RELATIVE_PATH folder BASE_DIRECTORY ${CMAKE_CURRENT_LIST_DIR} OUTPUT_VARIABLE ${name}_folder)
  list(APPEND FLASHCORE_CUDA_FAMILIES ${name})
endforeach()

# As rows of C++: which GPUs each family was compiled for.
set(FLASHCORE_CUDA_TARGET_ROWS "")
foreach(family ${FLASHCORE_CUDA_FAMILIES})
  string(APPEND FLASHCORE_CUDA_TARGET_ROWS
    "inline constexpr std::string_view ${family} = \"${${family}_targets}\";\n")
endforeach()
