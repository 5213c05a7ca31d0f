# forward_sm90_latency_wide's compiled kernels.
flashcore_cuda_sources(forward_sm90_latency_wide GROUP both SOURCES forward_sm90/latency_wide/f16.cu
                       forward_sm90/latency_wide/bf16.cu)
target_sources(flashcore_objects PRIVATE forward_sm90/latency_wide/instances.cpp)
