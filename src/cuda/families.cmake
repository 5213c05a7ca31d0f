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

set(FLASHCORE_CUDA_FAMILIES ladder ladder_fp8 ladder_wgmma forward_sm80_throughput forward_sm80_latency
    forward_sm90_throughput forward_sm90_latency forward_sm90_latency_wide)
flashcore_cuda_family(ladder 80 89 90a)
flashcore_cuda_family(ladder_fp8 89 90a)  # e4m3 mma.sync
flashcore_cuda_family(ladder_wgmma 90a)
flashcore_cuda_family(forward_sm80_throughput 80+ptx 8x 90a)
flashcore_cuda_family(forward_sm80_latency 80+ptx 8x 90a)
flashcore_cuda_family(forward_sm90_throughput 90a)
flashcore_cuda_family(forward_sm90_latency 90a)
flashcore_cuda_family(forward_sm90_latency_wide 90a)
