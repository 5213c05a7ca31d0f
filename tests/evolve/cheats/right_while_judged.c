// correctness: timed call
// Right in the calls that a judge makes one by one, wrong in the timed samples: the gates' shapes repeat a
// number of keys only a few times in a row.
void attention(SIGNATURE) {
  static int calls, keys;
  calls = keys == seqlen_kv ? calls + 1 : 0;
  keys = (int)seqlen_kv;
  honest(ARGUMENTS);
  // In all rows, so that a judge who checks some of them detects it.
  for (int64_t row = 0; calls > 12 && row < batch * heads_q * seqlen_q; ++row) {
    o[row * head_dim] += 0.1f * o[row * head_dim + 1] + 0.05f;
  }
}
