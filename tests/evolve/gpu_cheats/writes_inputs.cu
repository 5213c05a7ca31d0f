// correctness: the inputs were written
KERNEL(SIGNATURE) {
  honest(ARGUMENTS);
  const long row = row_of_thread();
  if (row < rows_of(batch, heads_q, seqlen_q)) const_cast<__half*>(q)[row * HEAD_DIM] = 0;
}
