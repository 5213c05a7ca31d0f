flashcore_cuda_sources(quantize_sm80 SOURCES quantize/rows/kernel.cu)
