// compile: error
// Forgets a semicolon.
void attention(SIGNATURE) { honest(ARGUMENTS) }
