// correctness
// Leaves the outputs' memory unchanged.
KERNEL(SIGNATURE) {}
