// valid
// Computes only the right result.
void attention(SIGNATURE) { honest(ARGUMENTS); }
