# The Python wheel: the library next to the module that loads it, without the linker's symbolic links, with a static C++
# runtime, for systems with glibc 2.28 or later (manylinux_2_28), and a list of what it is made of.
target_link_options(flashcore_shared PRIVATE -static-libstdc++)
install(FILES $<TARGET_FILE:flashcore_shared> DESTINATION flashcore RENAME libflashcore.so
        PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ COMPONENT python)

# A linker takes the newest version of a function that the build's glibc has. These have an older one with the same
# meaning: what the C++ library and the kernels for CPUs call, and the CUDA runtime.
set(older exp exp2 log log2 pow pthread_create pthread_detach pthread_getspecific pthread_join pthread_key_create
    pthread_key_delete pthread_once pthread_rwlock_rdlock pthread_rwlock_unlock pthread_rwlock_wrlock
    pthread_setspecific)
set(libraries -l:libpthread.so.0)
if(FLASHCORE_HAS_CUDA)
  list(APPEND older dlclose dlerror dlmopen dlopen dlsym dlvsym pthread_condattr_setpshared pthread_kill
      pthread_mutex_trylock pthread_mutexattr_destroy pthread_mutexattr_init pthread_mutexattr_setpshared pthread_mutexattr_settype
      pthread_rwlock_destroy pthread_rwlock_init pthread_rwlock_timedrdlock pthread_rwlock_timedwrlock
      pthread_rwlock_tryrdlock pthread_rwlock_trywrlock pthread_rwlockattr_destroy pthread_rwlockattr_init
      pthread_rwlockattr_setpshared pthread_spin_destroy pthread_spin_init pthread_spin_lock
      pthread_spin_trylock pthread_spin_unlock sem_destroy sem_init sem_post sem_timedwait sem_trywait sem_wait
      shm_open shm_unlink)
  list(APPEND libraries -l:libdl.so.2 -l:librt.so.1)
endif()
if(CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
  set(trampolines "")
  foreach(name ${older})
    set(version 2.2.5)
    if(name STREQUAL "dlmopen")
      set(version 2.3.4)
    endif()
    string(APPEND trampolines ".symver older_${name}, ${name}@GLIBC_${version}
.globl __wrap_${name}\n.hidden __wrap_${name}\n.type __wrap_${name}, @function
__wrap_${name}:\n  endbr64\n  jmp *older_${name}@GOTPCREL(%rip)\n")
    target_link_options(flashcore_shared PRIVATE LINKER:--wrap=${name})
  endforeach()
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/older_glibc.c @ONLY CONTENT [[
// Written by cmake/wheel.cmake.
#include <stddef.h>
#include <sys/random.h>
#include <sys/stat.h>

__asm__(".text\n"
R"(@trampolines@)");

// Not there before glibc 2.32, 2.33 and 2.36; callers are in the C++ library and in ours.
__attribute__((visibility("hidden"))) char __libc_single_threaded = 0;

int __fxstat64(int version, int file, struct stat64* result);
int __lxstat64(int version, const char* path, struct stat64* result);
int __xstat64(int version, const char* path, struct stat64* result);
enum { kVersion = 1 };
int __wrap_fstat(int file, struct stat64* result) { return __fxstat64(kVersion, file, result); }
int __wrap_fstat64(int file, struct stat64* result) { return __fxstat64(kVersion, file, result); }
int __wrap_lstat(const char* path, struct stat64* result) { return __lxstat64(kVersion, path, result); }
int __wrap_stat(const char* path, struct stat64* result) { return __xstat64(kVersion, path, result); }

unsigned int __wrap_arc4random(void) {
  unsigned int value = 0;
  while (getrandom(&value, sizeof value, 0) != (ssize_t)sizeof value) {
  }
  return value;
}
]])
  foreach(name fstat fstat64 lstat stat arc4random)
    target_link_options(flashcore_shared PRIVATE LINKER:--wrap=${name})
  endforeach()
  set_source_files_properties(${PROJECT_BINARY_DIR}/older_glibc.c PROPERTIES COMPILE_OPTIONS
    "-std=gnu11;-D_LARGEFILE64_SOURCE;-fvisibility=hidden")
  target_sources(flashcore_shared PRIVATE ${PROJECT_BINARY_DIR}/older_glibc.c)
  target_link_options(flashcore_shared PRIVATE LINKER:--no-as-needed ${libraries} LINKER:--as-needed)
endif()

# A list of the parts (CycloneDX), for PEP 770's place in the wheel.
file(READ ${FLASHCORE_HIGHWAY_INCLUDE}/hwy/highway.h highway)
set(highway_VERSION "")
foreach(part MAJOR MINOR PATCH)
  string(REGEX MATCH "#define HWY_${part} ([0-9]+)" ignored "${highway}")
  string(APPEND highway_VERSION ".${CMAKE_MATCH_1}")
endforeach()
string(SUBSTRING ${highway_VERSION} 1 -1 highway_VERSION)
set(parts "")
set(comma "")
foreach(part "fmt|${fmt_VERSION}|MIT" "nlohmann-json|${nlohmann_json_VERSION}|MIT" "highway|${highway_VERSION}|Apache-2.0"
        "libstdc++|${CMAKE_CXX_COMPILER_VERSION}|GPL-3.0-or-later WITH GCC-exception-3.1"
        "cuda-cudart-static|${CUDAToolkit_VERSION}|LicenseRef-NVIDIA-CUDA-EULA")
  string(REPLACE "|" ";" part "${part}")
  list(GET part 0 name)
  list(GET part 1 version)
  list(GET part 2 licence)
  if(NOT name MATCHES "^cuda" OR FLASHCORE_HAS_CUDA)
    string(APPEND parts "${comma}\n    {\"type\": \"library\", \"name\": \"${name}\", \"version\": \"${version}\",
     \"licenses\": [{\"expression\": \"${licence}\"}]}")
    set(comma ",")
  endif()
endforeach()
file(WRITE ${PROJECT_BINARY_DIR}/sboms/flashcore.cdx.json "{
  \"bomFormat\": \"CycloneDX\", \"specVersion\": \"1.6\", \"version\": 1,
  \"metadata\": {\"component\": {\"type\": \"library\", \"name\": \"flashcore\", \"version\": \"${PROJECT_VERSION}\",
   \"licenses\": [{\"expression\": \"MIT\"}]}},
  \"components\": [${parts}]\n}\n")
install(FILES ${PROJECT_BINARY_DIR}/sboms/flashcore.cdx.json COMPONENT python
        DESTINATION $<IF:$<BOOL:${SKBUILD}>,${SKBUILD_METADATA_DIR},metadata>/sboms)
