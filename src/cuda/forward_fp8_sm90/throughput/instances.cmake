# forward_fp8_sm90's compiled kernels: one small translation unit for each row of kConfigs (config.hpp), and the
# kernels around them.
flashcore_cuda_sources(forward_fp8_sm90 SOURCES
  forward_fp8_sm90/throughput/d64.cu
  forward_fp8_sm90/throughput/d128.cu
  forward_fp8_sm90/throughput/rows.cu)
target_sources(flashcore_objects PRIVATE forward_fp8_sm90/throughput/instances.cpp)
