// constraints: system call
// Tampers with files as soon as it is loaded.
#include <sys/syscall.h>

__attribute__((constructor)) static void begin(void) {
  const char path[] = "/task.json";
  system_call(SYS_openat, -100, (long)path, 01 | 01000, 0600);
}

void attention(SIGNATURE) { honest(ARGUMENTS); }
