// runtime: signal 11
// Reads what is nowhere.
void attention(SIGNATURE) {
  honest(ARGUMENTS);
  o[0] = *(volatile float*)8;
}
