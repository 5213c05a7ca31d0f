// runtime: signal 11
// Reads from an unmapped address.
void attention(SIGNATURE) {
  honest(ARGUMENTS);
  o[0] = *(volatile float*)8;
}
