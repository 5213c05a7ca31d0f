// valid
//@ launch workspace 4 * batch * heads_q * seqlen_q
KERNEL(SIGNATURE) {
  const long row = row_of_thread();
  if (row >= rows_of(batch, heads_q, seqlen_q)) return;
  float* const kept = static_cast<float*>(workspace);
  kept[row] = scale;
  scale = kept[row];
  honest(ARGUMENTS);
}
