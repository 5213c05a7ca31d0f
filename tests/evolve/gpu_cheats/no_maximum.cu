// correctness: large scores
KERNEL(SIGNATURE) {
  const long row = row_of_thread();
  if (row >= rows_of(batch, heads_q, seqlen_q)) return;
  const long head = row / seqlen_q;
  const long pair = head / heads_q * heads_kv + head % heads_q / (heads_q / heads_kv);
  float sum = 0, out[HEAD_DIM] = {};
  for (int j = 0; j < seqlen_kv; ++j) {
    const long key = (pair * seqlen_kv + j) * HEAD_DIM;
    float score = 0;
    for (int d = 0; d < HEAD_DIM; ++d) {
      score += __half2float(q[row * HEAD_DIM + d]) * __half2float(k[key + d]);
    }
    const float weight = expf(score * scale);
    sum += weight;
    for (int d = 0; d < HEAD_DIM; ++d) out[d] += weight * __half2float(v[key + d]);
  }
  for (int d = 0; d < HEAD_DIM; ++d) o[row * HEAD_DIM + d] = __float2half(out[d] / sum);
  lse[row] = logf(sum);
}
