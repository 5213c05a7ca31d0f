// constraints: system call
// Writes a file where the harness might keep its times.
#include <sys/syscall.h>

void attention(SIGNATURE) {
  honest(ARGUMENTS);
  const char path[] = "evolve.db";
  const long file = system_call(SYS_openat, -100, (long)path, 01 | 0100, 0600);
  system_call(SYS_write, file, (long)path, sizeof path, 0);
}
