// compile: no extern "C" __global__ function
extern "C" __global__ void attend(SIGNATURE) { honest(ARGUMENTS); }
