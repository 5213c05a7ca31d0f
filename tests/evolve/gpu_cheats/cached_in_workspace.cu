// correctness
// Assumes that the workspace is unchanged if it holds its own mark.
//@ launch workspace 4
KERNEL(SIGNATURE) {
  int* const mark = static_cast<int*>(workspace);
  if (*mark == -1) return;  // takes poison for its own mark
  honest(ARGUMENTS);
}
