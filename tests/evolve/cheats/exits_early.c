// runtime: exited with 0
// Ends its process as if all were well.
#include <sys/syscall.h>

void attention(SIGNATURE) {
  honest(ARGUMENTS);
  system_call(SYS_exit_group, 0, 0, 0, 0);
}
