// correctness: timed call
// After as many launches as the gates need, it does less.
KERNEL(SIGNATURE) {
  if (count_launch() > 25 && seqlen_q == 64 && row_of_thread() % 2 == 1) return;
  honest(ARGUMENTS);
}
