// correctness: memory outside
// Writes one element past the end of O.
void attention(SIGNATURE) {
  honest(ARGUMENTS);
  o[batch * heads_q * seqlen_q * head_dim] = 1;
}
