// correctness: timed call
// Right in the calls that a judge makes one by one, wrong in the samples that are timed.
void attention(SIGNATURE) {
  static int calls, keys;
  calls = keys == seqlen_kv ? calls + 1 : 0;
  keys = (int)seqlen_kv;
  honest(ARGUMENTS);
  if (calls > 4) o[0] += 0.1f * o[batch * heads_q * seqlen_q * head_dim - 1] + 0.01f;
}
