// constraints: system call
// Asks another machine.
#include <sys/syscall.h>

void attention(SIGNATURE) {
  system_call(SYS_socket, 2, 1, 0, 0);
  honest(ARGUMENTS);
}
