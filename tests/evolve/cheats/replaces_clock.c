// valid, not faster
// Defines a clock that stands still. The clock that counts is in another process.
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec* now) {
  (void)clock;
  now->tv_sec = 1;
  now->tv_nsec = 0;
  return 0;
}

void attention(SIGNATURE) { honest(ARGUMENTS); }
