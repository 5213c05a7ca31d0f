// timeout: no answer
// Never returns.
void attention(SIGNATURE) {
  honest(ARGUMENTS);
  for (volatile int i = 0;; i = i + 1) {
  }
}
