# Every kernel of the library on the simulated GPUs: flashcore_simulated_kernel(NAME DEVICE PROBLEMS...) as
# verify_kernel.py describes them, with --backward before them for a backward pass. Device sim:0 is of compute
# capability 9.0, sim:1 of 8.0, sim:2 of 8.9.
#
# 200 problems for each folder of kernels; its kernels and the GPUs that they differ on share them. What comes after
# them runs the lines that they miss (coverage.py). More heads than 4 cost time and run the same lines, but for blocks
# that take one tile after another: the longer problems have any number, where no /N says otherwise.
function(flashcore_simulated_kernel kernel device)
  string(REPLACE ":" "" place ${device})
  set(name simulated.${kernel}.${place})
  if("--any-order" IN_LIST ARGN)
    string(APPEND name .any_order)
  endif()
  add_test(NAME ${name}
    COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/verify_kernel.py
            $<TARGET_FILE:flashcore_command> ${kernel} ${device} ${ARGN})
  # The longest begin first, so that no core waits for one at the end.
  set(cost 50)
  if("--backward" IN_LIST ARGN)
    set(cost 200)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "simulator;kernels" TIMEOUT 900 COST ${cost})
endfunction()

flashcore_simulated_kernel(forward_sm90_throughput sim:0 140x112/4 30x112x256/4 3x400 scores/softcap/f16/30/)
# Pages: one random problem in 70 has the type of Q, no padding on the left and pages of 8 rows or more.
flashcore_simulated_kernel(forward_sm90_throughput:paged sim:0 paged/60x112/4 paged/3x400/4)
# Options: biases of 16 bits, masks, ALiBi, which few random problems have without anything that it refuses.
flashcore_simulated_kernel(forward_sm90_throughput:options sim:0 narrow/60x112/4 narrow/3x400/4
  scores/bias/f16/f16/ scores/alibi/f16/100/)
flashcore_simulated_kernel(forward_sm90_throughput:192x128 sim:0 20x112/4 2x400)
flashcore_simulated_kernel(forward_sm90_throughput:64x128 sim:0 20x112/4 2x400)
flashcore_simulated_kernel(forward_sm90_throughput:64x64 sim:0 20x112/4 2x400)
# Two tiles of keys in each of eight places are 1024 keys.
flashcore_simulated_kernel(forward_sm90_latency sim:0 200x112/4 3x400 6x1300/4)
flashcore_simulated_kernel(forward_sm90_latency:wide sim:0 200x112/4 3x400)
# e4m3 alone: of 20 tiles of keys O leaves the accumulators twice. The precise one is the same code.
flashcore_simulated_kernel(forward_fp8_sm90 sim:0 e4m3/185x160/4 e4m3/6x700/4 e4m3/1x2600/1)
flashcore_simulated_kernel(forward_fp8_sm90:192x64 sim:0 e4m3/60x160/4 e4m3/3x700/4 e4m3/1x2600/1)
flashcore_simulated_kernel(forward_fp8_sm90:precise sim:0 e4m3/10x400/4 e4m3/1x1400/1)
# e4m3 alone; 96 and 240 among the head dimensions. On Hopper the same code.
flashcore_simulated_kernel(forward_fp8_sm89 sim:2 e4m3/180x112/4 e4m3/8x200x256/4 e4m3/2x700/4)
flashcore_simulated_kernel(forward_fp8_sm89 sim:0 e4m3/5x300/4)
flashcore_simulated_kernel(forward_fp8_sm89:precise sim:2 e4m3/5x400/4)
# The kernels inside are those above and below.
flashcore_simulated_kernel(forward_converted:fp8 sim:1 100x112/4 2x300)
flashcore_simulated_kernel(forward_converted:fp8 sim:0 100x112/4 scores/fp8/outliers/64x1000x64)
# V in rows for the kernels that want it so.
flashcore_simulated_kernel(forward_converted:v_rows sim:1 transposed/40x112/4 transposed/2x300/4)
flashcore_simulated_kernel(forward_converted:v_rows sim:0 transposed/30x112/4)
# With options: fp8 outputs, largest values, e5m2, softcap, packed batches, other head dimensions.
flashcore_simulated_kernel(forward_fp8_sm90:options sim:0 40x112x256/4 e4m3/2x700/3)
flashcore_simulated_kernel(forward_sm80_throughput sim:1 80x112/4 3x400
  scores/softcap/f16/30/normal scores/softcap/f16/1e+05 scores/bias/f16/f16/ scores/alibi/f16/100/)
# Pairs of warps at head dimension 256.
flashcore_simulated_kernel(forward_sm80_throughput sim:0 40x112/4 2x400 100x112x256/4)
# Only ALiBi, which random problems hardly ever have.
add_test(NAME simulated.alibi
  COMMAND flashcore_command run --device sim:1 --kernel forward_sm80_throughput --shape 1,2,400,64
          --with alibi_slopes --check)
set_tests_properties(simulated.alibi PROPERTIES LABELS "simulator;kernels" TIMEOUT 120)
flashcore_simulated_kernel(forward_sm80_throughput:f32 sim:1 40x112/4 2x400)
flashcore_simulated_kernel(forward_sm80_throughput:split_kv sim:1 40x112/4 2x400)
# Caches of Q's type, in pages of any size and padded on the left; on 8.9 and 9.0 the same code.
flashcore_simulated_kernel(forward_sm80_throughput:paged sim:1 paged/100x112/4 paged/40x112x256/4 paged/4x400/4)
flashcore_simulated_kernel(forward_sm80_throughput:paged sim:0 paged/20x112/4)
# Two problems in five are of fp8. With one query against so many keys, these are split.
flashcore_simulated_kernel(forward_sm80_throughput:fp8 sim:1 80x112/4 2x400)
add_test(NAME simulated.fp8_splits
  COMMAND flashcore_command run --device sim:1 --kernel forward_sm80_throughput:fp8 --dtype f8e4m3 --shape 1,1,1,64
          --seqlen-kv 2100 --check)
set_tests_properties(simulated.fp8_splits PROPERTIES LABELS "simulator;kernels" TIMEOUT 120)
# Mixes of e4m3 and e5m2, by what the choice takes: forward_converted:fp8 where V is of another type than K.
foreach(types "f8e4m3;f8e4m3;f8e5m2" "f8e5m2;f8e4m3;f8e5m2" "f8e4m3;f8e5m2;f8e5m2")
  list(GET types 0 q)
  list(GET types 1 k)
  list(GET types 2 v)
  add_test(NAME simulated.fp8_mix.${q}.${k}.${v}
    COMMAND flashcore_command run --device sim:1 --dtype ${q} --kv-dtype ${k} --v-dtype ${v} --shape 1,2,70,64
            --with q_scale,k_scale,v_scale --causal --check)
  set_tests_properties(simulated.fp8_mix.${q}.${k}.${v} PROPERTIES LABELS "simulator;kernels" TIMEOUT 120)
endforeach()
flashcore_simulated_kernel(forward_sm80_latency sim:1 120x112/4 3x400)
flashcore_simulated_kernel(forward_sm80_latency sim:0 80x112/4 2x400)
# Caches: 500 problems and more have been tried by hand. A part has 128 keys at least.
flashcore_simulated_kernel(decode_sm80 sim:1 paged/130x80/4 paged/3x500/4 20x112/4 paged/100x80x256/4
  paged/30x60x576/4)
flashcore_simulated_kernel(decode_sm80 sim:2 paged/50x80/4)
# A share of a block has a whole number of 128 keys.
flashcore_simulated_kernel(decode_sm90 sim:0 paged/165x80/4 paged/6x900/4 30x112/4)
# V in K. Two tiles of heads, several tiles of keys in a part; without a cache, packed ones too.
flashcore_simulated_kernel(mla_sm90 sim:0 latent/paged/100x112 latent/paged/20x600 latent/40x112)
# Sequences of two and more parts of their own.
add_test(NAME simulated.mla_sm90.batch_invariant
  COMMAND flashcore_command verify --device sim --kernel mla_sm90 --shapes none --latent --batch-invariant --random 4
          --largest-seqlen 70 --threads 1)
set_tests_properties(simulated.mla_sm90.batch_invariant PROPERTIES LABELS "simulator;kernels" TIMEOUT 300)
# Rows of kJointConfigs that share keys are compiled for 9.0, and for head dimensions past 128.
flashcore_simulated_kernel(backward_sm80 sim:1 --backward 160x112/4 3x300)
flashcore_simulated_kernel(backward_sm80 sim:0 --backward --any-order 40x112/4 10x112x256/4)
# Several steps of a tile of keys, and heads of queries that share one.
flashcore_simulated_kernel(backward_sm90 sim:0 --backward narrow/80x160/4 narrow/3x600)
flashcore_simulated_kernel(backward_sm90 sim:0 --backward --any-order narrow/50x160/4 narrow/1x600)
flashcore_simulated_kernel(backward_sm90:split sim:0 --backward narrow/40x112/4 narrow/1x600)
flashcore_simulated_kernel(backward_sm90:options sim:0 --backward narrow/80x160/4 narrow/2x400)
flashcore_simulated_kernel(backward_sm90:wide sim:0 --backward narrow/120x100x256/2 narrow/2x400x256)
# 200 for the ladder too, by its own list of cases.
foreach(rung
    00_unfused 01_scalar 02_wmma_qk 03_vector_pv 04_wmma_pv 05_warp_softmax 06_cp_async
    06_cp_async_s3 06_cp_async_s2_producer 06_cp_async_s3_producer 07_xor_swizzle
    08_register_softmax 09_fused_epilogue 10_large_tiles 10_large_tiles_q128 11_warp_specialized
    12_mma_sync 13_fp8_stage_c 14_fp8_native 15_wgmma_tma)
  # One in 60 random problems has values that are not finite and that only some rows of a tile see: two quick
  # rungs have so many.
  set(tails 10)
  if(rung MATCHES "^(08|12)_")
    set(tails 60)
  endif()
  add_test(NAME simulated.${rung}
    COMMAND flashcore_command ladder --device sim --quick --seeds 0 --tails ${tails} --rungs ${rung})
  set_tests_properties(simulated.${rung} PROPERTIES LABELS "simulator;kernels" TIMEOUT 900)
endforeach()
