// correctness
// Copies the previous row's result to every eighth row.
void attention(SIGNATURE) {
  for (int64_t row = 0; row < batch * heads_q * seqlen_q; ++row) {
    if (row % 8 != 7) {
      honest_row(ARGUMENTS, row);
      continue;
    }
    memcpy(o + row * head_dim, o + (row - 1) * head_dim, sizeof(float) * (size_t)head_dim);
    lse[row] = lse[row - 1];
  }
}
