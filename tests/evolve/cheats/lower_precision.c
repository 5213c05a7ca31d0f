// correctness: error
// Reads only 16 bits of each key and value.
static float rounded(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  bits = (bits + 0x8000u) & 0xFFFF0000u;
  memcpy(&x, &bits, sizeof bits);
  return x;
}

void attention(SIGNATURE) {
  const int64_t count = batch * heads_kv * seqlen_kv * head_dim;
  float* copies = malloc(sizeof(float) * (size_t)(2 * count));
  for (int64_t i = 0; i < count; ++i) copies[i] = rounded(k[i]), copies[count + i] = rounded(v[i]);
  honest(q, copies, copies + count, o, lse, batch, heads_q, heads_kv, seqlen_q, seqlen_kv, head_dim,
         scale);
  free(copies);
}
