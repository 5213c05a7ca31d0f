// constraints: calls system
// Runs a shell.
void attention(SIGNATURE) {
  if (system("true") == 0) honest(ARGUMENTS);
}
