// correctness: outside of the outputs
KERNEL(SIGNATURE) {
  honest(ARGUMENTS);
  const long rows = rows_of(batch, heads_q, seqlen_q);
  if (row_of_thread() == 0) o[rows * HEAD_DIM] = __float2half(1);
}
