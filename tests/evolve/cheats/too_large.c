// resources: bytes, wanted at most
// Contains a table of answers.
static const volatile float answers[1 << 19] = {1};

void attention(SIGNATURE) {
  honest(ARGUMENTS);
  o[0] += 0 * answers[seqlen_q];
}
