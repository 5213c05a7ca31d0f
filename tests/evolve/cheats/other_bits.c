// correctness: other bits
// Depends on the addresses of its tensors.
void attention(SIGNATURE) {
  honest(ARGUMENTS);
  o[0] *= (uintptr_t)q / 64 % 2 ? 1.000001f : 0.999999f;
  o[1] *= (uintptr_t)k / 128 % 2 ? 1.000001f : 0.999999f;
  o[2] *= (uintptr_t)v / 64 % 2 ? 1.000001f : 0.999999f;
  o[3] *= (uintptr_t)o / 64 % 2 ? 1.000001f : 0.999999f;
}
