// correctness
// Rounds outputs to four bits.
KERNEL(SIGNATURE) {
  honest(ARGUMENTS);
  const long row = row_of_thread();
  if (row >= rows_of(batch, heads_q, seqlen_q)) return;
  for (int d = 0; d < HEAD_DIM; ++d) {
    const float x = __half2float(o[row * HEAD_DIM + d]);
    o[row * HEAD_DIM + d] = __float2half(roundf(x * 16) / 16);
  }
}
