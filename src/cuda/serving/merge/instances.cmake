flashcore_cuda_sources(merge SOURCES serving/merge/kernel.cu)
