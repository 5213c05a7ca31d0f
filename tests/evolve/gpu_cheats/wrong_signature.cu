// compile: signature
// gpu only: the stub does not know a function's parameters.
extern "C" __global__ void attention(SIGNATURE, float* more) { honest(ARGUMENTS); }
