// compile: no function
// Its function has another name.
void other(SIGNATURE) { honest(ARGUMENTS); }
