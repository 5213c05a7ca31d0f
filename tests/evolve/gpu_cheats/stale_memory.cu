// correctness
// Whatever the outputs' memory has.
KERNEL(SIGNATURE) {}
