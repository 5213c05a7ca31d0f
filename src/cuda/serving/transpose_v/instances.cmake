flashcore_cuda_sources(transpose_v SOURCES serving/transpose_v/kernel.cu)
