// compile
// gpu only: a kernel that starts others needs a library that candidates are not linked with.
__global__ void later(SIGNATURE) { honest(ARGUMENTS); }
KERNEL(SIGNATURE) {
  if (row_of_thread() == 0) later<<<gridDim.x, 64>>>(ARGUMENTS);
}
