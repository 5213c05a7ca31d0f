# forward_fp8_sm89's compiled kernels: one small translation unit for each row of kConfigs (config.hpp).
flashcore_cuda_sources(forward_fp8_sm89 SOURCES forward_fp8_sm89/throughput/d64.cu)
flashcore_cuda_sources(forward_fp8_sm89 GROUP wide SOURCES
  forward_fp8_sm89/throughput/d128.cu
  forward_fp8_sm89/throughput/d256.cu)
target_sources(flashcore_objects PRIVATE forward_fp8_sm89/throughput/instances.cpp)
