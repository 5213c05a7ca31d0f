# Every kernel of the library on the simulated GPUs, by verify_kernel.py: so many random problems, and so
# many with long sequences. Device sim:0 is of compute capability 9.0, sim:1 of 8.0, sim:2 of 8.9.
#
# 200 problems for each folder of kernels; its kernels and the GPUs that they differ on share them.
function(flashcore_simulated_kernel kernel device problems long_problems)
  string(REPLACE ":" "" place ${device})
  set(name simulated.${kernel}.${place})
  add_test(NAME ${name}
    COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/verify_kernel.py
            $<TARGET_FILE:flashcore_command> ${kernel} ${device} ${problems} ${long_problems})
  set_tests_properties(${name} PROPERTIES LABELS "simulator;kernels" TIMEOUT 900)
endfunction()

flashcore_simulated_kernel(forward_sm90_throughput sim:0 140 3)
flashcore_simulated_kernel(forward_sm90_192x128 sim:0 20 2)
flashcore_simulated_kernel(forward_sm90_64x128 sim:0 20 2)
flashcore_simulated_kernel(forward_sm90_64x64 sim:0 20 2)
flashcore_simulated_kernel(forward_sm90_latency sim:0 200 3)
flashcore_simulated_kernel(forward_sm90_latency_wide sim:0 200 3)
flashcore_simulated_kernel(forward_sm80_throughput sim:1 80 3)
flashcore_simulated_kernel(forward_sm80_throughput sim:0 40 2)  # pairs of warps at head dimension 256
flashcore_simulated_kernel(forward_sm80_f32 sim:1 40 2)
flashcore_simulated_kernel(forward_sm80_split_kv sim:1 40 2)
flashcore_simulated_kernel(forward_sm80_latency sim:1 120 3)
flashcore_simulated_kernel(forward_sm80_latency sim:0 80 2)
# 200 for the ladder too, by its own list of cases.
foreach(rung
    00_unfused 01_scalar 02_wmma_qk 03_vector_pv 04_wmma_pv 05_warp_softmax 06_cp_async
    06_cp_async_s3 06_cp_async_s2_producer 06_cp_async_s3_producer 07_xor_swizzle
    08_register_softmax 09_fused_epilogue 10_large_tiles 10_large_tiles_q128 11_warp_specialized
    12_mma_sync 13_fp8_stage_c 14_fp8_native 15_wgmma_tma)
  add_test(NAME simulated.${rung}
    COMMAND flashcore_command ladder --device sim --quick --seeds 0 --tails 10 --rungs ${rung})
  set_tests_properties(simulated.${rung} PROPERTIES LABELS "simulator;kernels" TIMEOUT 900)
endforeach()
