// runtime: signal
// Keeps allocating memory.
void attention(SIGNATURE) {
  for (int i = 0; i < 64; ++i) memset(malloc(1 << 26), 1, 1 << 26);
  honest(ARGUMENTS);
}
