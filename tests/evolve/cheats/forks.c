// constraints: system call
// Leaves the work to a process, which shares the outputs, by a system call of its own.
#include <signal.h>
#include <sys/syscall.h>

void attention(SIGNATURE) {
  if (system_call(SYS_clone, SIGCHLD, 0, 0, 0) != 0) return;
  honest(ARGUMENTS);
  system_call(SYS_exit_group, 0, 0, 0, 0);
}
