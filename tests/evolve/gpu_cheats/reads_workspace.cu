// correctness
// Reads the workspace as if it were zero.
//@ launch workspace 4 * batch * heads_q * seqlen_q
KERNEL(SIGNATURE) {
  honest(ARGUMENTS);
  const long row = row_of_thread();
  if (row < rows_of(batch, heads_q, seqlen_q)) lse[row] += static_cast<float*>(workspace)[row];
}
