// Before all device code that Clang 14 compiles: its thread sanitizer calls these by the names of the C
// library, where a structure is copied or cleared. Later Clang and GCC call what plain_access.cpp has.
#pragma once

#if defined(__clang__) && __clang_major__ < 15
asm(".set memcpy, __tsan_memcpy\n.set memmove, __tsan_memmove\n.set memset, __tsan_memset");
#endif
