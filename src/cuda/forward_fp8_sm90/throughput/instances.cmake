# forward_fp8_sm90's compiled kernels: one small translation unit for each row of kConfigs and, for each type,
# of kOptionConfigs (config.hpp), and the kernels around them.
flashcore_cuda_sources(forward_fp8_sm90 GROUP plain SOURCES
  forward_fp8_sm90/throughput/d64.cu
  forward_fp8_sm90/throughput/d128.cu
  forward_fp8_sm90/throughput/d128_three.cu)
flashcore_cuda_sources(forward_fp8_sm90 SOURCES
  forward_fp8_sm90/throughput/rows.cu
  forward_fp8_sm90/throughput/option_rows.cu)
flashcore_cuda_sources(forward_fp8_sm90 GROUP columns SOURCES
  forward_fp8_sm90/throughput/columns_d64.cu
  forward_fp8_sm90/throughput/columns_d128.cu
  forward_fp8_sm90/throughput/columns_d128_three.cu)
# Those with options are copied, as objects go by their folders: each has 4 MB of machine code.
foreach(instance e4m3_64 e4m3_128 e4m3_256 e5m2_64 e5m2_128 e5m2_256)
  set(folder options)
  if(instance MATCHES "^e5m2")
    set(folder options_e5m2)
  endif()
  set(source ${CMAKE_CURRENT_BINARY_DIR}/generated/forward_fp8_sm90/${folder}/options_${instance}.cu)
  configure_file(forward_fp8_sm90/throughput/options_${instance}.cu ${source} COPYONLY)
  flashcore_cuda_sources(forward_fp8_sm90_${folder} SOURCES ${source})
endforeach()
target_sources(flashcore_objects PRIVATE
  forward_fp8_sm90/throughput/instances.cpp
  forward_fp8_sm90/throughput/option_instances.cpp)
