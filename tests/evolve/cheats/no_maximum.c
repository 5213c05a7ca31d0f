// correctness: large scores
// Skips the subtraction of the largest score, which N(0, 1) does not need.
void attention(SIGNATURE) {
  for (int64_t row = 0; row < batch * heads_q * seqlen_q; ++row) {
    const int64_t head = row / seqlen_q;
    const int64_t kv = head / heads_q * heads_kv + head % heads_q / (heads_q / heads_kv);
    double sum = 0;
    for (int64_t d = 0; d < head_dim; ++d) o[row * head_dim + d] = 0;
    for (int64_t j = 0; j < seqlen_kv; ++j) {
      float s = 0;
      for (int64_t d = 0; d < head_dim; ++d) {
        s += q[row * head_dim + d] * k[(kv * seqlen_kv + j) * head_dim + d];
      }
      const float p = expf(s * scale);
      sum += p;
      for (int64_t d = 0; d < head_dim; ++d) {
        o[row * head_dim + d] += p * v[(kv * seqlen_kv + j) * head_dim + d];
      }
    }
    for (int64_t d = 0; d < head_dim; ++d) o[row * head_dim + d] /= (float)sum;
    lse[row] = (float)log(sum);
  }
}
