// correctness
// Reads uninitialised shared memory as if it were zero.
KERNEL(SIGNATURE) {
  __shared__ float sums[64 * 100];
  honest(ARGUMENTS);
  const long row = row_of_thread();
  if (row >= rows_of(batch, heads_q, seqlen_q)) return;
  lse[row] += sums[threadIdx.x * 100];
  sums[threadIdx.x * 100] = 1;
}
