// correctness: other bits
KERNEL(SIGNATURE) {
  honest(ARGUMENTS);
  const long row = row_of_thread();
  if (row < rows_of(batch, heads_q, seqlen_q)) lse[row] += (clock64() / 64 % 16) * 1e-6f;
}
