// Shared memory as variables of a kernel, for kernels whose measured
// machine code the functions of shared_memory.cuh would change.
#pragma once

// A static variable of the block, of this type.
#define FLASHCORE_SHARED_VARIABLE(name, ...) __shared__ __VA_ARGS__ name
// The launch's dynamic part, as an array at a multiple of 1024.
#define FLASHCORE_DYNAMIC_SHARED(name) extern __shared__ __align__(1024) unsigned char name[]
