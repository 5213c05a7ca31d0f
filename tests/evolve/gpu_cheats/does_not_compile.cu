// compile
KERNEL(SIGNATURE) { honest(ARGUMENTS) }
