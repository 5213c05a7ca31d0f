// correctness
KERNEL(SIGNATURE) {
  if (blockIdx.x % 2 == 1 && gridDim.x > 1) return;
  honest(ARGUMENTS);
}
