// constraints: system call
// Leaves the work to another process that shares the outputs, by its own system call.
#include <signal.h>
#include <sys/syscall.h>

void attention(SIGNATURE) {
  if (system_call(SYS_clone, SIGCHLD, 0, 0, 0) != 0) return;
  honest(ARGUMENTS);
  system_call(SYS_exit_group, 0, 0, 0, 0);
}
