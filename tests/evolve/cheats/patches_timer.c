// constraints: system call
// Sets the clock back after the work.
#include <sys/syscall.h>

void attention(SIGNATURE) {
  honest(ARGUMENTS);
  const long past[2] = {1, 0};
  system_call(SYS_clock_settime, 0, (long)past, 0, 0);
}
