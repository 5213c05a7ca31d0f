// correctness
KERNEL(SIGNATURE) {
  const long row = row_of_thread();
  if (row >= rows_of(batch, heads_q, seqlen_q)) return;
  for (int d = 0; d < HEAD_DIM; ++d) o[row * HEAD_DIM + d] = __float2half(0);
  lse[row] = 0;
}
