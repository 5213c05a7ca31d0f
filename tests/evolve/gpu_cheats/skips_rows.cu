// correctness
KERNEL(SIGNATURE) {
  const long row = row_of_thread();
  if (row < rows_of(batch, heads_q, seqlen_q)) honest_row(ARGUMENTS, row / 2 * 2, seqlen_kv);
}
