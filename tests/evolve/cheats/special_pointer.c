// correctness: an element|is -?nan|wanted|memory outside
// Assumes that tensors are at the addresses of the first call.
static float *first_o, *first_lse;

void attention(SIGNATURE) {
  if (!first_o) first_o = o, first_lse = lse;
  honest(q, k, v, first_o, first_lse, batch, heads_q, heads_kv, seqlen_q, seqlen_kv, head_dim,
         scale);
}
