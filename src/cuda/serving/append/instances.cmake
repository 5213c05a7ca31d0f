flashcore_cuda_sources(append SOURCES serving/append/kernel.cu serving/append/columns.cu)
