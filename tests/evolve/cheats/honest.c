// valid
// Nothing but the right result.
void attention(SIGNATURE) { honest(ARGUMENTS); }
