# The SIMD kernels: one translation unit per instruction set and pass, each instruction set with its
# own namespace. Function attributes enable the instructions only inside of that namespace: nothing
# that the linker could share with the rest of the library is compiled for them.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|amd64")
  set(FLASHCORE_SIMD_SOURCES
    cpu/simd/backward_sse4.cpp
    cpu/simd/forward_sse4.cpp
    cpu/simd/backward_avx2.cpp
    cpu/simd/forward_avx2.cpp
    cpu/simd/backward_avx3.cpp
    cpu/simd/forward_avx3.cpp
    cpu/simd/backward_avx3_bf16.cpp
    cpu/simd/forward_avx3_bf16.cpp
    cpu/simd/backward_amx.cpp
    cpu/simd/forward_amx.cpp
    cpu/simd/quantize_avx2.cpp
    cpu/simd/quantize_avx3.cpp
    cpu/simd/quantize_sse4.cpp)
else()
  set(FLASHCORE_SIMD_SOURCES cpu/simd/backward_native.cpp cpu/simd/forward_native.cpp
                             cpu/simd/quantize_native.cpp)
endif()
target_sources(flashcore_objects PRIVATE ${FLASHCORE_SIMD_SOURCES})
target_include_directories(flashcore_objects SYSTEM PRIVATE ${FLASHCORE_HIGHWAY_INCLUDE})
# Every copy of a loop must compute the same sums: multiplications and additions are fused only
# where the code says so. Clang does not know `#pragma GCC unroll`. With a sanitizer they are compiled
# in a third of the time at -O1.
set(simd_options -O3 -ffp-contract=off -Wno-unknown-pragmas)
if(FLASHCORE_SANITIZE)
  list(APPEND simd_options -O1)
endif()
set_source_files_properties(${FLASHCORE_SIMD_SOURCES} PROPERTIES COMPILE_OPTIONS "${simd_options}"
  SKIP_PRECOMPILE_HEADERS ON)
