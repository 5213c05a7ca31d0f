// correctness
KERNEL(SIGNATURE) {
  if (count_launch() <= 1) honest(ARGUMENTS);
}
