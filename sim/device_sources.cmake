# Compiling the CUDA kernels' objects as plain C++ (src/cuda/nvcc.cmake is the other way).
target_link_libraries(flashcore_cuda PRIVATE flashcore_simulated_device)
# Sources and headers that hold both halves ask for it.
target_compile_definitions(flashcore_cuda PRIVATE __CUDACC__)

if(FLASHCORE_COVERAGE)  # sim/tests/coverage.py reads the counts
  target_compile_options(flashcore_cuda PRIVATE --coverage)
endif()

# flashcore_cuda_sources(FAMILY [LISTED] [EXCEPT 90a | ONLY 90a] SOURCES a.cu ...): the files of a family.
function(flashcore_cuda_sources family)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "LISTED" "EXCEPT;ONLY" "SOURCES")
  set(flashcore_cuda_compiled ON PARENT_SCOPE)
  target_sources(flashcore_cuda PRIVATE ${ARG_SOURCES})
  set_source_files_properties(${ARG_SOURCES} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-x;c++")
endfunction()
