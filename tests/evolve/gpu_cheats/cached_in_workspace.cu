// correctness
// Hopes that the workspace is what it was, and that its own mark says so.
//@ launch workspace 4
KERNEL(SIGNATURE) {
  int* const mark = static_cast<int*>(workspace);
  if (*mark == -1) return;  // of poison it believes that it left it
  honest(ARGUMENTS);
}
