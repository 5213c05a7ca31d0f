// Included before all device code that Clang 14 compiles: its thread sanitizer calls these functions by the C
// library's names where a structure is copied or cleared. Later Clang and GCC call the ones in plain_access.cpp.
#pragma once

#if defined(__clang__) && __clang_major__ < 15
asm(".set memcpy, __tsan_memcpy\n.set memmove, __tsan_memmove\n.set memset, __tsan_memset");
#endif
