// compile: no function
// Has another name.
void other(SIGNATURE) { honest(ARGUMENTS); }
