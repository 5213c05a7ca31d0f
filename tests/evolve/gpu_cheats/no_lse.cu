// correctness
__device__ float nowhere[1 << 16];
KERNEL(SIGNATURE) {
  lse = nowhere;
  if (rows_of(batch, heads_q, seqlen_q) <= (1 << 16)) honest(ARGUMENTS);
}
