// runtime: signal
// Replaces the problem by an easier one.
void attention(SIGNATURE) {
  memset((void*)k, 0, sizeof(float) * (size_t)(batch * heads_kv * seqlen_kv * head_dim));
  honest(ARGUMENTS);
}
