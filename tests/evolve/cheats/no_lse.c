// correctness: lse
// Skips the logarithm.
void attention(SIGNATURE) {
  float* other = malloc(sizeof(float) * (size_t)(batch * heads_q * seqlen_q));
  honest(q, k, v, o, other, batch, heads_q, heads_kv, seqlen_q, seqlen_kv, head_dim, scale);
  for (int64_t i = 0; i < batch * heads_q * seqlen_q; ++i) lse[i] = 0;
  free(other);
}
