# forward_fp8_sm90's compiled kernels: one small translation unit for each row of kConfigs and, for each type,
# of kOptionConfigs (config.hpp), and the kernels around them.
flashcore_cuda_sources(forward_fp8_sm90 SOURCES
  forward_fp8_sm90/throughput/d64.cu
  forward_fp8_sm90/throughput/d128.cu
  forward_fp8_sm90/throughput/d128_three.cu
  forward_fp8_sm90/throughput/rows.cu
  forward_fp8_sm90/throughput/columns_d64.cu
  forward_fp8_sm90/throughput/columns_d128.cu
  forward_fp8_sm90/throughput/columns_d128_three.cu)
flashcore_cuda_sources(forward_fp8_sm90_options SOURCES
  forward_fp8_sm90/options/options_e4m3_64.cu
  forward_fp8_sm90/options/options_e4m3_128.cu
  forward_fp8_sm90/options/options_e4m3_256.cu
  forward_fp8_sm90/options/options_e5m2_64.cu
  forward_fp8_sm90/options/options_e5m2_128.cu
  forward_fp8_sm90/options/options_e5m2_256.cu
  forward_fp8_sm90/options/option_rows.cu)
target_sources(flashcore_objects PRIVATE
  forward_fp8_sm90/throughput/instances.cpp
  forward_fp8_sm90/throughput/option_instances.cpp)
