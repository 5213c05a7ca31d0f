// correctness: not told
KERNEL(SIGNATURE) {
  if (seqlen_q % 64 == 0) honest(ARGUMENTS);
}
